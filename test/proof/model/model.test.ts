import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { lacking } from '../../harness/programs.ts';
import { share } from '../../harness/share.ts';
import { missingTools, search } from './run.ts';
import { COUNTEREXAMPLES, searches } from './searches.ts';

const quick = searches.filter((each) => each.quick);
/** The model as it is, and every twentieth variation of it and every twentieth rule: `npm run model` takes each. */
const [base, ...variations] = quick.filter((each) => each.expect === 'ok');
const whole = [...(base ? [base] : []), ...share(variations, 20)];
const rules = share(
  quick.filter((each) => each.expect === 'error'),
  20,
);
const missing = missingTools();

it('--list says of every mutant what goes wrong, and of no other', () => {
  const run = execFileSync(process.execPath, [join(import.meta.dirname, 'run.ts'), '--list'], {
    encoding: 'utf8',
  });
  const listed = [...run.matchAll(/^([A-Z_]+(?:, [A-Z_]+)*): .{20,}$/gm)].flatMap(([, rules = '']) =>
    rules.split(', '),
  );
  const leftOut = searches
    .filter(({ expect }) => expect === 'error')
    .map(({ name }) => name.split(',')[0] ?? '');
  expect(listed).toHaveLength(new Set(listed).size);
  expect(listed.sort()).toEqual([...new Set(leftOut)].sort());
  expect(run.trim().split('\n')).toHaveLength(COUNTEREXAMPLES.length);
});

describe.skipIf(missing.length > 0)(`the protocols, searched completely by Spin${lacking(missing)}`, () => {
  it.each(whole)('no state of "$name" breaks $guards', (each) => {
    expect(search(each)).toMatchObject({ found: 'ok', violated: '' });
  });

  it.each(rules)('$name breaks a promise ($guards)', (mutant) => {
    expect(search(mutant).found).toBe('error');
  });

  it('a search cut short is no proof', () => {
    if (base === undefined) throw new Error('no quick search');
    expect(search(base, { depthMax: 20 }).found).toBe('not completed');
  });
});
