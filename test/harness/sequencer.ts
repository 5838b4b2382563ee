import { BaseSequencer, type TestSpecification } from 'vitest/node';

const PROJECT_ORDER: readonly string[] = ['proof', 'system', 'redis', 'unit'];

/** Files that take longest, in the order in which they begin, so that none of them is left to run alone at the end. */
const LONGEST = [
  'chaos/chaos',
  'cli/package',
  'cli/doctor',
  'control-plane/redis/durability',
  'dashboard/dashboard',
  'cli/commands',
  'end-to-end/lifecycle',
  'end-to-end/clients',
  'verifier/proxy/proxy-differential',
  'redis/sentinel',
  'deploy/runbook',
  'end-to-end/start',
  'verifier/fast-lane/survival',
  'model/model',
  'deploy/kubernetes-runbook',
  'edges/edges',
  'simulation/simulation',
  'mutants/mutants',
  'dashboard/reference',
  'verifier/fast-lane/differential',
  'edges/lost-creations',
  'cli/transfer',
  'deploy/group',
  'deploy/rollout',
  'redis/cluster',
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
