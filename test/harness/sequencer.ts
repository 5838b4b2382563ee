import { BaseSequencer, type TestSpecification } from 'vitest/node';

const PROJECT_ORDER: readonly string[] = ['proof', 'system', 'redis', 'unit'];

/** Files that take longest, in the order in which they begin, so that none of them is left to run alone at the end. */
const LONGEST = [
  'chaos/chaos',
  'cli/commands',
  'model/model',
  'end-to-end/lifecycle',
  'cli/package',
  'end-to-end/clients',
  'end-to-end/version-gate',
  'verifier/proxy/proxy-differential',
  'mutants/mutants',
  'simulation/simulation',
  'control-plane/redis/durability',
  'end-to-end/start',
  'deploy/kubernetes',
  'deploy/runbook',
  'deploy/kubernetes-runbook',
  'dashboard/reference',
  'dashboard/accessibility',
  'dashboard/keys',
  'dashboard/key',
  'dashboard/sections',
  'redis/sentinel',
  'simulation/mutants',
  'verifier/fast-lane/differential',
  'verifier/fast-lane/data-events',
  'verifier/fast-lane/survival',
  'deploy/rollout',
  'deploy/group',
  'edges/edges',
  'edges/lost-creations',
  'cli/doctor',
  'documentation',
  'cli/transfer',
  'redis/cluster',
  'verifier/http/limits',
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
