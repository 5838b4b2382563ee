import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';

/** A Kubernetes object as helm and kustomize print it. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Record<string, string>;
    readonly annotations?: Record<string, string>;
  };
  // biome-ignore lint/suspicious/noExplicitAny: what is in it is what the tests are about
  readonly [field: string]: any;
}

const GO_PACKAGE = 'sigs.k8s.io/kustomize/kustomize/v5@v5.8.1';
const TOOLS = [
  { command: ['kubectl', 'kustomize'], probe: ['version', '--client'] },
  { command: ['kustomize', 'build'], probe: ['version'] },
  // Where only Go is: downloaded and built once, which takes a minute or two.
  { command: ['go', 'run', GO_PACKAGE, 'build'], probe: ['run', GO_PACKAGE, 'version'] },
];

/** The command that renders a folder, from what is installed here; undefined when nothing can. */
export const kustomize = TOOLS.find(({ command: [tool = ''], probe }) => {
  const { status, stdout } = spawnSync(tool, probe, { encoding: 'utf8' });
  // kubectl 1.20 and older cannot read components, and do not name their kustomize.
  return status === 0 && (tool !== 'kubectl' || /^Kustomize Version: v[45]/m.test(stdout));
})?.command;

/** Where the installations, the parts for APIs and the examples are. */
export const KUBERNETES = join(import.meta.dirname, '..', '..', 'deploy', 'kubernetes');

/** All objects of a kustomization folder. Throws with kustomize's own words where it refuses. */
export function render(folder: string): Manifest[] {
  const [tool = '', ...args] = kustomize ?? [];
  return objectsOf(execFileSync(tool, [...args, realpathSync(folder)], { encoding: 'utf8', stdio: 'pipe' }));
}

/** All objects of a file of deploy/kubernetes. */
export const manifestsIn = (file: string) => objectsOf(readFileSync(join(KUBERNETES, file), 'utf8'));

/** All objects of a text. Kubernetes reads YAML 1.1, where 0444 is octal. */
export const objectsOf = (text: string): Manifest[] =>
  parseAllDocuments(text, { version: '1.1' }).flatMap((document) => document.toJS() ?? []);
