// `npm run build:helm`: builds the helm of the tests where Go is, once.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { scriptArguments, wrongArguments } from '../../deploy/dev/arguments.ts';

/** A command that Go can build: which module it is in, and at which version. */
export interface GoTool {
  readonly name: string;
  readonly module: string;
  readonly version: string;
  readonly package: string;
  /** What it is to say when asked for its version; only Kubernetes is not told by Go itself. */
  readonly stamped?: boolean;
}

/** What both tests and `npm run test:kubernetes` render charts with. */
export const HELM: GoTool = {
  name: 'helm',
  module: 'helm.sh/helm/v4',
  version: 'v4.3.1',
  package: 'helm.sh/helm/v4/cmd/helm',
};
const STAMP = 'k8s.io/component-base/version';

/** Where a tool is when it has been built: outside of the project, for all its clones. */
export const builtPath = ({ name, version }: GoTool): string =>
  join(
    process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'),
    'keyfence-kubernetes',
    `${name}-${version}`,
  );

const hasGo = () => spawnSync('go', ['version']).status === 0;

/** Builds a tool unless that was done before, from Go's module proxy, and returns its path. Takes minutes. */
function ensureTool(tool: GoTool): string {
  const path = builtPath(tool);
  if (existsSync(path)) return path;
  const folder = mkdtempSync(join(tmpdir(), 'keyfence-go-'));
  try {
    const go = (...args: string[]) =>
      execFileSync('nice', ['-n', '10', 'go', ...args], {
        cwd: folder,
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, GOFLAGS: '-mod=mod -buildvcs=false -trimpath', CGO_ENABLED: '0' },
      });
    const downloaded = JSON.parse(go('mod', 'download', '-json', `${tool.module}@${tool.version}`));
    const goMod = readFileSync(downloaded.GoMod as string, 'utf8');
    writeFileSync(join(folder, 'go.mod'), moduleOf(tool, goMod));
    mkdirSync(join(path, '..'), { recursive: true });
    const [major = '', minor = ''] = tool.version.replace('v', '').split('.');
    const stamps = { gitVersion: tool.version, gitMajor: major, gitMinor: minor };
    const flags = Object.entries(tool.stamped ? stamps : {}).map(
      ([name, value]) => `-X ${STAMP}.${name}=${value}`,
    );
    go('build', '-ldflags', ['-s -w', ...flags].join(' '), '-o', `${path}.new`, tool.package);
    renameSync(`${path}.new`, path);
    return path;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * A module that needs the tool's alone. Kubernetes' own replaces its parts by folders of its source; outside of it they
 * are modules, v0.36.3 for v1.36.3.
 */
function moduleOf({ module, version }: GoTool, goMod: string): string {
  const [goVersion = ''] = goMod.match(/^go .*$/m) ?? [];
  const parts = new Set(
    [...goMod.matchAll(/^\s*(?:replace )?(\S+) => \.\/staging\//gm)].map(([, part]) => part),
  );
  const replaced = [...parts].map((part) => `replace ${part} => ${part} ${version.replace('v1.', 'v0.')}`);
  return ['module tool', goVersion, `require ${module} ${version}`, ...replaced, ''].join('\n');
}

const USAGE = `npm run build:helm

Builds helm ${HELM.version} for the tests of the chart, where Go is and it has not been built before. Takes about two minutes.`;

if (import.meta.main) {
  scriptArguments(USAGE, {});
  if (!hasGo()) wrongArguments('there is no Go on PATH', USAGE);
  console.log(ensureTool(HELM));
}
