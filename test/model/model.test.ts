import { describe, expect, it } from 'vitest';
import { lacking } from '../harness/programs.ts';
import { turn } from '../harness/share.ts';
import { missingTools, search } from './run.ts';
import { searches } from './searches.ts';

const quick = searches.filter((each) => each.quick);
/** Every third rule, which third turns with the commit; `npm run model` takes each away. */
const rules = quick.filter((each) => each.expect === 'error').filter((_, at) => at % 3 === turn % 3);
const missing = missingTools();

describe.skipIf(missing.length > 0)(
  `the coherence protocol, searched completely by Spin${lacking(missing)}`,
  () => {
    it.each(quick.filter((each) => each.expect === 'ok'))(
      'no state reachable within the bounds of "$name" breaks $guards',
      (base) => {
        expect(search(base)).toMatchObject({ found: 'ok', violated: '' });
      },
    );

    it.each(rules)('without the rule that $name removes, Spin finds a broken promise ($guards)', (mutant) => {
      expect(search(mutant).found).toBe('error');
    });

    it('a search cut short by its depth limit is not taken for a proof', () => {
      const [base] = quick;
      if (base === undefined) throw new Error('no quick search');
      expect(search(base, { depthMax: 20 }).found).toBe('not completed');
    });
  },
);
