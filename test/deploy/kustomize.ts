import { execFileSync, spawnSync } from 'node:child_process';
import { realpathSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';

/** A Kubernetes object as kustomize prints it. */
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

/** Where nothing changes while tests run. */
const OURS = join(import.meta.dirname, '..', '..', 'deploy');
const outputs = new Map<string, string>();

/** All objects of a kustomization folder. Throws with kustomize's own words where it refuses. */
export function render(folder: string): Manifest[] {
  const known = outputs.get(folder);
  const output = known ?? run(folder);
  if (folder.startsWith(OURS)) outputs.set(folder, output);
  // kustomize writes YAML 1.1, where 0444 is octal.
  return parseAllDocuments(output, { version: '1.1' }).map((document) => document.toJS() as Manifest);
}

function run(folder: string): string {
  const [tool = '', ...args] = kustomize ?? [];
  return execFileSync(tool, [...args, realpathSync(folder)], { encoding: 'utf8', stdio: 'pipe' });
}
