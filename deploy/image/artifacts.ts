/**
 * `npm run build:release -- FOLDER`: writes all files of a release, made from the commit that is checked out.
 * The same commit, base image, Node and npm give the same bytes
 * (https://reproducible-builds.org/docs/source-date-epoch/).
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { scriptArguments, wrongArguments } from '../dev/arguments.ts';

const USAGE = `npm run build:release -- FOLDER --base IMAGE@sha256:…   (or --no-image)

Writes into FOLDER, which must not be there:
  npm/     the packages: keyfence (the library), keyfence-server, keyfence-revocation
  chart/   the Helm chart
  image/   the container image, for each architecture that this machine can run, as an OCI layout in a tar
  sbom.json, manifest.json (versions, sizes, digests) and SHA256SUMS

  --base      base of the image by its digest; buildah fetches it
  --no-image  leave the image out`;

const options = { base: { type: 'string' }, 'no-image': { type: 'boolean' } } as const;
const { values, positionals } = scriptArguments(USAGE, { allowPositionals: true, options });
const { base, 'no-image': withoutImage } = values;
if (positionals.length !== 1 || !positionals[0]) wrongArguments('FOLDER: required, once.', USAGE);
const folder = resolve(positionals[0]);
if (existsSync(folder)) wrongArguments(`FOLDER: ${folder} is there already.`, USAGE);
if ((base === undefined) !== (withoutImage === true))
  wrongArguments('--base or --no-image: one of them.', USAGE);
if (base !== undefined && !/@sha256:[0-9a-f]{64}$/.test(base))
  wrongArguments('--base: must end with the digest of the image, @sha256: and 64 hex digits.', USAGE);

const run = (command: string, args: readonly string[], cwd = '.') =>
  execFileSync(command, args, {
    encoding: 'utf8',
    cwd,
    maxBuffer: 2 ** 30,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
const git = (...args: string[]) => run('git', args).trim();
if (git('status', '--porcelain') !== '')
  wrongArguments('The checkout has changes: a release is made from a commit.', USAGE);
if (base !== undefined) run('buildah', ['--version']);

const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
const revision = git('rev-parse', 'HEAD');
/** Time of the commit, Unix seconds, which every file gets. */
const epoch = git('log', '-1', '--format=%ct');

process.umask(0o022); // the same modes for every user
/**
 * Take only the files of the commit, not others in the checkout. The copy lies within the checkout, so that
 * bundles name the files of node_modules by the same relative paths wherever the checkout is.
 */
mkdirSync('build', { recursive: true });
const work = resolve(mkdtempSync(join('build', 'release-')));
const [source, output] = [join(work, 'source'), join(work, 'made')];
try {
  run('git', ['archive', '--format=tar', '--prefix=source/', `--output=${work}/source.tar`, 'HEAD']);
  run('tar', ['--no-same-permissions', '-xf', join(work, 'source.tar'), '-C', work]);
  symlinkSync(resolve('node_modules'), join(source, 'node_modules'));
  for (const part of ['npm', 'chart']) mkdirSync(join(output, part), { recursive: true });
  run(process.execPath, ['deploy/image/packages.ts', join(work, 'packages')], source);
  for (const name of readdirSync(join(work, 'packages')))
    run('npm', ['pack', '--silent', '--pack-destination', join(output, 'npm')], join(work, 'packages', name));
  writeFileSync(join(output, 'sbom.json'), run(process.execPath, ['deploy/image/sbom.ts'], source));
  tar(join(source, 'deploy/helm'), 'keyfence', join(work, 'chart.tar'));
  const chart = gzipSync(readFileSync(join(work, 'chart.tar')), { level: 9 });
  writeFileSync(join(output, 'chart', `keyfence-${version}.tgz`), chart);
  const images = base === undefined ? [] : buildImage(base);

  const files = filesOf(output);
  const manifest = {
    version,
    revision,
    time: new Date(Number(epoch) * 1000).toISOString(),
    madeWith: { node: process.versions.node, npm: run('npm', ['--version']).trim() },
    ...(base === undefined ? {} : { base }),
    images,
    files: files.map((name) => ({ name, bytes: statSync(join(output, name)).size, sha256: sha256(name) })),
  };
  writeFileSync(join(output, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  const sums = filesOf(output).map((name) => `${sha256(name)}  ${name}\n`);
  writeFileSync(join(output, 'SHA256SUMS'), sums.join(''));
  // Copy everything at the end, so that a failed build leaves nothing.
  cpSync(output, folder, { recursive: true });
  process.stdout.write(sums.join(''));
} finally {
  rmSync(work, { recursive: true });
  if (readdirSync('build').length === 0) rmdirSync('build');
}

/** Returns the paths of all files in a folder, sorted. */
function filesOf(path: string): string[] {
  const entries = readdirSync(path, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map(({ parentPath, name }) => relative(path, join(parentPath, name))).sort();
}

function sha256(name: string): string {
  return createHash('sha256')
    .update(readFileSync(join(output, name)))
    .digest('hex');
}

/** Packs a folder reproducibly: sorted names, one owner, one time. Needs GNU tar. */
function tar(parent: string, name: string, target: string): void {
  const options = ['--sort=name', `--mtime=@${epoch}`, '--owner=0', '--group=0', '--numeric-owner'];
  run('tar', [...options, '--format=ustar', '--mode=u+rw,go=rX,a-s', '-cf', target, '-C', parent, name]);
}

/**
 * Builds the image for every architecture that this machine can run; returns the digests by which to pin it.
 */
function buildImage(from: string): { platform: string; digest: string }[] {
  const list = `localhost/keyfence-release:${revision}`;
  const isEmulated = (name: string) => existsSync(`/proc/sys/fs/binfmt_misc/qemu-${name}`);
  const platforms = [
    ...(process.arch === 'x64' || isEmulated('x86_64') ? ['linux/amd64'] : []),
    ...(process.arch === 'arm64' || isEmulated('aarch64') ? ['linux/arm64'] : []),
  ];
  const layout = join(work, 'layout');
  run('buildah', ['manifest', 'create', list]);
  try {
    for (const platform of platforms) {
      run('buildah', [
        ...['bud', '--pull=false', '--platform', platform, '--manifest', list, '--timestamp', epoch],
        ...['--build-arg', `NODE_IMAGE=${from}`, '--build-arg', `VERSION=${version}`],
        ...['--build-arg', `REVISION=${revision}`, '-f', join(source, 'deploy/Dockerfile'), source],
      ]);
    }
    run('buildah', ['manifest', 'push', '--all', list, `oci:${layout}:${version}`]);
  } finally {
    run('buildah', ['manifest', 'rm', list]);
  }
  mkdirSync(join(output, 'image'));
  tar(layout, '.', join(output, 'image', `keyfence-${version}.oci.tar`));
  return digestsOf(layout);
}

/** Returns the digests by which an OCI layout names its images; that of the index comes first. */
function digestsOf(layout: string): { platform: string; digest: string }[] {
  const read = (path: string) => JSON.parse(readFileSync(join(layout, path), 'utf8'));
  const [{ digest }] = read('index.json').manifests as [{ digest: string }];
  const { manifests } = read(join('blobs', digest.replace(':', '/'))) as {
    manifests: { digest: string; platform: { os: string; architecture: string } }[];
  };
  return [
    { platform: 'all', digest },
    ...manifests.map((image) => ({
      platform: `${image.platform.os}/${image.platform.architecture}`,
      digest: image.digest,
    })),
  ];
}
