import { execFileSync, spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Document, parse, parseDocument } from 'yaml';
import { builtPath, HELM } from '../dev/go-tools.ts';

export const CHART = join(import.meta.dirname, 'keyfence');
const KUBERNETES = 'deploy/kubernetes';
const STYLE = { lineWidth: 0 } as const;
const ROOT = join(import.meta.dirname, '..', '..');

/** The real helm: the one that is installed, or that `npm run build:helm` has built. */
export const helm = ['helm', builtPath(HELM)].find((command) => {
  const { status, stdout } = spawnSync(command, ['version', '--template', '{{.Version}}'], {
    encoding: 'utf8',
  });
  // 3.18 reads the schema as it is written.
  return status === 0 && /^v(3\.(1[89]|[2-9]\d)|[4-9])/.test(stdout);
});

/** Runs helm and returns what it prints. Throws with its own words where it refuses. */
export function runHelm(...args: string[]): string {
  if (!helm) throw new Error('no helm here');
  return execFileSync(helm, args, { encoding: 'utf8', stdio: 'pipe' });
}

/**
 * Returns the files of deploy/kubernetes that helm makes of the chart, by their paths: an installation beside each
 * values.yaml, and those parts of overlays/dev that belong to an API.
 */
export function plainManifests(): Record<string, string> {
  const files: Record<string, string> = {};
  const write = (file: string, objects: readonly string[]) => {
    const head = '# Rendered from the chart, deploy/helm/keyfence: npm run docs.\n';
    if (objects.length > 0) files[`${KUBERNETES}/${file}`] = head + objects.join('---\n');
  };
  for (const file of globSync('**/values.yaml', { cwd: join(ROOT, KUBERNETES) }).sort()) {
    const folder = dirname(file);
    const objects = objectsOf(folder);
    const isMonitoring = (object: string) => object.includes('apiVersion: monitoring.coreos.com/');
    write(
      `${folder}/keyfence.yaml`,
      objects.filter((object) => !isMonitoring(object)),
    );
    write(`${folder}/monitoring.yaml`, objects.filter(isMonitoring));
    const sample = objects.filter((object) => object.includes('  name: sample-api\n'));
    if (sample.length === 0) continue;
    const { patches, deployment } = withoutVerifier(sample.at(-1) ?? '');
    const api = [...sample.slice(0, -1), deployment].map((object) =>
      object.replace(/^ {2}namespace: .*\n/m, ''),
    );
    write('example/api/api.yaml', api);
    for (const [name, patch] of Object.entries(patches))
      write(`components/verifier-sidecar/${name}.yaml`, [patch]);
  }
  return files;
}

/** The objects of an installation, without the labels that are Helm's own. */
function objectsOf(folder: string): string[] {
  const path = join(ROOT, KUBERNETES, folder);
  const { namespace = 'keyfence' } = parse(readFileSync(join(path, 'kustomization.yaml'), 'utf8'));
  const options = ['--namespace', namespace, '--no-hooks', '--kube-version', '1.36.0'];
  return runHelm('template', 'keyfence', CHART, '--values', join(path, 'values.yaml'), ...options)
    .replaceAll(/^# Source: .*\n|^ +(?:app\.kubernetes\.io\/managed-by|helm\.sh\/chart): .*\n/gm, '')
    .split(/^---\n/m)
    .map((object) => `${object.trim()}\n`)
    .filter((object) => object !== '\n');
}

/** The sample API by itself, and the patches that give a workload the verifier that it has. */
function withoutVerifier(text: string): { deployment: string; patches: Record<string, string> } {
  const deployment = parseDocument(text, { version: '1.1' });
  const pod = ['spec', 'template', 'spec'];
  const spec = {
    initContainers: [deployment.getIn([...pod, 'initContainers', 0])],
    volumes: [deployment.getIn([...pod, 'volumes', 0])],
  };
  const template = { metadata: { labels: { 'keyfence/verifier': 'sidecar' } }, spec };
  const patch = (apiVersion: string, kind: string, spec: object) =>
    new Document({ apiVersion, kind, metadata: { name: 'any' }, spec }, { version: '1.1' }).toString(STYLE);
  const patches = {
    sidecar: patch('apps/v1', 'Deployment', { template }),
    'sidecar-of-cron-job': patch('batch/v1', 'CronJob', { jobTemplate: { spec: { template } } }),
  };
  deployment.deleteIn([...pod, 'initContainers']);
  deployment.deleteIn([...pod, 'volumes', 0]);
  deployment.deleteIn(['spec', 'template', 'metadata', 'labels', 'keyfence/verifier']);
  return { deployment: deployment.toString(STYLE), patches };
}
