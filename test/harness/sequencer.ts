import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that take longest, in the order in which they begin, so that none of them is left to run alone at the end. */
const LONGEST = [
  'chaos/chaos',
  'model/model',
  'cli/doctor',
  'control-plane/redis/durability',
  'end-to-end/lifecycle',
  'deploy/group',
  'redis/sentinel',
  'deploy/runbook',
  'deploy/kubernetes-runbook',
  'dashboard/dashboard',
  'cli/commands',
  'end-to-end/clients',
  'verifier/fast-lane/survival',
  'simulation/simulation',
  'deploy/rollout',
  'verifier/proxy/proxy-differential',
  'edges/edges',
  'redis/cluster',
];

/** Begins with the longest files, whatever project they are in; then the larger ones, as Vitest does. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const rank = ({ moduleId }: TestSpecification) => {
      const place = LONGEST.findIndex((name) => moduleId.endsWith(`/${name}.test.ts`));
      return place < 0 ? LONGEST.length : place;
    };
    return sorted.toSorted((a, b) => rank(a) - rank(b));
  }
}
