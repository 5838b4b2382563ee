import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { lacking } from '../harness/programs.ts';
import { builtPath, HELM } from '../kubernetes/go-tools.ts';
import type { Manifest } from './kustomize.ts';

export const CHART = join(import.meta.dirname, '..', '..', 'deploy', 'helm', 'keyfence');

/** The real helm: the one that is installed, or that `npm run build:helm` has built. */
export const helm = ['helm', builtPath(HELM)].find((command) => {
  const { status, stdout } = spawnSync(command, ['version', '--template', '{{.Version}}'], {
    encoding: 'utf8',
  });
  // 3.18 reads the schema as it is written.
  return status === 0 && /^v(3\.(1[89]|[2-9]\d)|[4-9])/.test(stdout);
});
/** Reason why tests are skipped, for their names. */
export const noHelm = lacking(helm ? [] : ['helm']);

/** Runs helm and returns what it prints. Throws with its own words where it refuses. */
export function runHelm(...args: string[]): string {
  if (!helm) throw new Error('no helm here');
  return execFileSync(helm, args, { encoding: 'utf8', stdio: 'pipe' });
}

/** Choices of somebody who installs the chart. */
export interface Choices {
  readonly release?: string;
  readonly namespace?: string;
  readonly chart?: string;
  readonly kubeVersion?: string;
  /** By path: `redis.mode`. */
  readonly values?: Readonly<Record<string, unknown>>;
}

/** The arguments of `helm template` and `helm install` for some choices. */
export function helmArguments(choices: Choices = {}): string[] {
  const { release = 'keyfence', namespace = 'keyfence', chart = CHART } = choices;
  // A value is JSON, so that nothing depends on how helm reads text.
  const set = Object.entries(choices.values ?? {}).flatMap(([name, value]) => [
    '--set-json',
    `${name}=${JSON.stringify(value)}`,
  ]);
  return [release, chart, '--namespace', namespace, ...set];
}

/** All objects that the chart makes of some choices, the tests' too. */
export function renderChart(choices: Choices = {}): Manifest[] {
  const text = runHelm(
    'template',
    ...helmArguments(choices),
    '--kube-version',
    choices.kubeVersion ?? '1.36.0',
  );
  return parseAllDocuments(text, { version: '1.1' })
    .map((document) => document.toJS() as Manifest | null)
    .filter((object) => object !== null);
}

/** Tells whether helm makes an object for `helm test` alone. */
export const isHook = ({ metadata }: Manifest) => metadata.annotations?.['helm.sh/hook'] !== undefined;
