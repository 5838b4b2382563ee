import { execFileSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { parse } from 'yaml';
import { type Manifest, KUBERNETES as ROOT, render } from '../kustomize.ts';

/** Every release from the oldest that deploy/kubernetes/README.md claims to the newest that it names. */
const MINORS = [27, 28, 29, 30, 31, 32, 33, 34, 35, 36];
/** Fields that were there earlier, but refused unless somebody switched them on. */
const SWITCHED_ON: readonly [RegExp, number][] = [
  [/\.preStop\.sleep$/, 30],
  [/\.initContainers\.restartPolicy$/, 29],
  [/\.topologySpreadConstraints\.matchLabelKeys$/, 27],
  [/\.unhealthyPodEvictionPolicy$/, 27],
];
const temporary = mkdtempSync(join(tmpdir(), 'keyfence-fields-'));
afterAll(() => rmSync(temporary, { recursive: true }));

const folders = globSync('**/kustomization.yaml', { cwd: ROOT })
  .filter((file) => parse(readFileSync(join(ROOT, file), 'utf8')).kind === 'Kustomization')
  .map((file) => dirname(file));
/** The first release that a folder is for. */
const sinceOf = (folder: string) => (folder === 'injection' ? 36 : /sidecar|dev/.test(folder) ? 29 : 27);

it.each(MINORS)('Kubernetes 1.%i knows every field of what is for it, and has it on', (minor) => {
  const known = folders
    .filter((folder) => sinceOf(folder) <= minor)
    .flatMap((folder) => render(join(ROOT, folder)));
  const all = [...known, ...legacy()].filter(
    ({ apiVersion }) => !/cert-manager|external-secrets|coreos/.test(apiVersion),
  );
  expect(all.length).toBeGreaterThan(20);
  const samples = samplesOf(minor);
  const faults = all.flatMap((object) => unknownFields(object, samples(object), object.kind));
  const off = all
    .flatMap((object) => pathsOf(object, object.kind))
    .filter((path) => SWITCHED_ON.some(([field, since]) => field.test(path) && minor < since));
  expect([...faults, ...off]).toEqual([]);
});

it('sees a field that is not there yet', () => {
  const [deployment] = render(join(ROOT, 'overlays/production')).filter(({ kind }) => kind === 'Deployment');
  const spoiled = structuredClone(deployment) as Manifest;
  spoiled['spec'].template.spec.hostnameOverride = 'x';
  expect(unknownFields(spoiled, samplesOf(27)(spoiled), 'Deployment')).toEqual([
    'Deployment.spec.template.spec.hostnameOverride',
  ]);
});

/** The sample API with its verifier as an ordinary container. */
function legacy(): Manifest[] {
  const folder = mkdtempSync(join(temporary, 'legacy-'));
  const to = (path: string) => relative(folder, join(ROOT, path));
  const [resources, components] = [[to('example/api')], [to('components/verifier-sidecar-legacy')]];
  const kustomization = {
    apiVersion: 'kustomize.config.k8s.io/v1beta1',
    kind: 'Kustomization',
    resources,
    components,
  };
  writeFileSync(join(folder, 'kustomization.yaml'), JSON.stringify(kustomization));
  return render(folder);
}

/** An object of each kind with every field that a release has: Kubernetes' own, for tests of this kind. */
function samplesOf(minor: number): (object: Manifest) => unknown {
  const module = execFileSync('go', ['mod', 'download', '-json', `k8s.io/api@v0.${minor}.0`], {
    cwd: temporary,
    encoding: 'utf8',
  });
  const samples = join(JSON.parse(module).Dir as string, 'testdata', 'HEAD');
  return ({ apiVersion, kind }) => {
    const [version = '', group = 'core'] = apiVersion.split('/').reverse();
    return JSON.parse(readFileSync(join(samples, `${group}.${version}.${kind}.json`), 'utf8'));
  };
}

function unknownFields(value: unknown, sample: unknown, path: string): string[] {
  if (typeof value !== 'object' || value === null || typeof sample !== 'object' || sample === null) return [];
  if (Array.isArray(value))
    return value.flatMap((each) => unknownFields(each, (sample as unknown[])[0], path));
  const fields = Object.entries(sample);
  // A map of free names is there with one that ends so.
  if (fields.some(([name]) => name.endsWith('Key') && name !== 'topologyKey')) return [];
  return Object.entries(value).flatMap(([name, inner]) =>
    name in sample
      ? unknownFields(inner, (sample as Record<string, unknown>)[name], `${path}.${name}`)
      : [`${path}.${name}`],
  );
}

function pathsOf(value: unknown, path: string): string[] {
  if (Array.isArray(value)) return value.flatMap((each) => pathsOf(each, path));
  if (typeof value !== 'object' || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([name, inner]) => pathsOf(inner, `${path}.${name}`))];
}
