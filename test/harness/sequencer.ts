import { BaseSequencer, type TestSpecification } from 'vitest/node';

const PROJECT_ORDER: readonly string[] = ['proof', 'system', 'redis', 'unit'];

/**
 * Files that take longest, in the order in which they begin, so that none of them is left to run alone at the end. Those
 * that mostly wait stand between those that keep a processor busy.
 */
const LONGEST = [
  'cli/commands',
  'dashboard/accessibility',
  'model/model',
  'chaos/chaos',
  'control-plane/redis/durability',
  'end-to-end/lifecycle',
  'redis/sentinel',
  'end-to-end/clients',
  'cli/package',
  'deploy/kubernetes-runbook',
  'end-to-end/version-gate',
  'verifier/proxy/proxy-differential',
  'mutants/mutants',
  'verifier/fast-lane/survival',
  'simulation/simulation',
  'dashboard/reference',
  'deploy/runbook',
  'dashboard/screenshots',
  'redis/cluster',
  'deploy/group',
  'cli/doctor',
  'verifier/proxy/proxy-without-lane',
  'end-to-end/start',
  'deploy/kubernetes',
  'dashboard/keys',
  'dashboard/key',
  'edges/edges',
  'dashboard/sections',
  'simulation/mutants',
  'verifier/fast-lane/differential',
  'verifier/proxy/rechecks',
  'verifier/http/limits',
  'deploy/rollout',
  'edges/lost-creations',
  'dashboard/signing-in',
  'deploy/release',
  'verifier/fast-lane/data-events',
  'deploy/monitoring',
  'cli/transfer',
  'documentation',
  'verifier/http/tls',
  'deploy/users',
  'cli/many-keys',
  'verifier/fast-lane/loans',
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
