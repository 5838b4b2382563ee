import { BaseSequencer, type TestSpecification } from 'vitest/node';

const PROJECT_ORDER: readonly string[] = ['proof', 'system', 'redis', 'unit'];

/**
 * Files that take longest, in the order in which they begin, so that none of them is left to run alone at the end. Those
 * that mostly wait stand between those that keep a processor busy.
 */
const LONGEST = [
  'model/model',
  'control-plane/redis/durability',
  'dashboard/key',
  'verifier/proxy/proxy-differential',
  'edges/edges',
  'dashboard/accessibility',
  'end-to-end/lifecycle',
  'chaos/chaos',
  'end-to-end/clients',
  'simulation/simulation',
  'mutants/mutants',
  'redis/sentinel',
  'verifier/lane/survival',
  'deploy/kubernetes',
  'deploy/runbook',
  'verifier/proxy/proxy-without-lane',
  'end-to-end/start',
  'dashboard/keys',
  'verifier/lane/differential',
  'dashboard/reference',
  'dashboard/sections',
  'limits/conformance',
  'documentation',
  'simulation/mutants',
  'end-to-end/version-gate',
  'verifier/lane/data-events',
  'deploy/kubernetes-runbook',
  'deploy/monitoring',
  'verifier/http/limits',
  'verifier/http/tls',
  'redis/cluster',
  'deploy/rollout',
  'deploy/group',
  'verifier/proxy/rechecks',
  'deploy/release',
  'credits/reroll',
  'cli/library',
  'cli/package',
  'cli/transfer',
  'edges/lost-creations',
  'control-plane/http/permission-matrix',
  'cli/doctor',
  'cli/commands',
  'verifier/lane/delegations',
  'shared/listening',
  'deploy/users',
  'verifier/library/create-verifier',
  'control-plane/http/contract',
  'cli/many-keys',
  'dashboard/signing-in',
  'dashboard/screenshots',
  'shared/admin',
  'verifier/proxy/proxy-edges',
];

/**
 * Begins with the longest files, whatever project they are in. The others follow project by project, so that a worker can
 * go on with the next file of its own; of a project the larger first, as Vitest does.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const rank = ({ moduleId }: TestSpecification) => {
      const place = LONGEST.findIndex((name) => moduleId.endsWith(`/${name}.test.ts`));
      return place < 0 ? LONGEST.length : place;
    };
    const order = ({ project }: TestSpecification) => PROJECT_ORDER.indexOf(project.name);
    return sorted.toSorted((a, b) => rank(a) - rank(b) || order(a) - order(b));
  }
}
