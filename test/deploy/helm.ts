import { CHART, helm, runHelm } from '../../deploy/helm/render.ts';
import { lacking } from '../harness/programs.ts';
import { type Manifest, objectsOf } from './kustomize.ts';

/** Reason why tests are skipped, for their names. */
export const noHelm = lacking(helm ? [] : ['helm']);

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
export const renderChart = (choices: Choices = {}): Manifest[] =>
  objectsOf(
    runHelm('template', ...helmArguments(choices), '--kube-version', choices.kubeVersion ?? '1.36.0'),
  );

/** Tells whether helm makes an object for `helm test` alone. */
export const isHook = ({ metadata }: Manifest) => metadata.annotations?.['helm.sh/hook'] !== undefined;
