import { expect, test } from 'vitest';
import { UNKNOWN_PRESENTER } from '#shared/rules/presenter.ts';
import { brokenRule, type KeyFacts, RULE_NAMES, RULES, type RuleName } from '#shared/rules/rules.ts';

const QUESTION = {
  ...{ apiId: 'shop', permissions: 'read' },
  presenter: { clientIp: '192.0.2.1', origin: 'https://a.example' },
};
const NOW_MS = 1000;

const GOOD: KeyFacts = {
  ...{ apiId: 'shop', enabled: true, identity: { enabled: true }, expires: 1001 },
  ...{ ranges: { has: (address) => address === '192.0.2.1' }, slugSet: new Set(['read']) },
  origins: { has: (origin) => origin === 'https://a.example' },
};

/** The fact that breaks each rule. */
const FAULTS: Record<RuleName, Partial<KeyFacts>> = {
  api: { apiId: 'other' },
  enabled: { enabled: false },
  identity: { identity: { enabled: false } },
  expires: { expires: 1000 },
  address: { ranges: { has: () => false } },
  origin: { origins: { has: () => false } },
  permissions: { slugSet: undefined },
};

test('a good key breaks no rule', () => {
  expect(brokenRule(GOOD, QUESTION, NOW_MS)).toBeUndefined();
  const plain = {
    ...GOOD,
    identity: undefined,
    expires: 0,
    ranges: undefined,
    origins: undefined,
    slugSet: undefined,
  };
  expect(brokenRule(plain, { presenter: UNKNOWN_PRESENTER }, NOW_MS)).toBeUndefined();
});

test.each(RULE_NAMES)('%s is broken by its fact, before later rules', (name) => {
  expect(RULES[name].isKept({ ...GOOD, ...FAULTS[name] }, QUESTION, NOW_MS)).toBe(false);
  for (const later of RULE_NAMES.slice(RULE_NAMES.indexOf(name)))
    expect(brokenRule({ ...GOOD, ...FAULTS[later], ...FAULTS[name] }, QUESTION, NOW_MS)).toBe(name);
});
