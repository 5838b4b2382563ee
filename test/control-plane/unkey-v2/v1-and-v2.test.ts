import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Answer, Fleet, ROOT_KEY } from '../../harness/fleet.ts';

/** The same acts by both generations of the interface leave the same key. */
let fleet: Fleet;
let base: string;
beforeAll(async () => {
  fleet = await Fleet.start({ env: { REDIS_COMMAND_TIMEOUT_MS: '60000' } });
  base = fleet.controlPlanes[0]?.address ?? '';
  for (const name of ['editor', 'reader']) await fleet.ok('permissions.createRole', { name });
});
afterAll(() => fleet.stop());

const authorization = `Bearer ${ROOT_KEY}`;
const post = (path: string, body: object): Promise<Answer> =>
  fleet.post(base + path, body, { authorization });

/** One act: its call, and the body of each generation. */
interface Act {
  readonly call: string;
  readonly callV2?: string;
  readonly v1: object;
  readonly v2: object;
}
const alike = (call: string) => (body: object) => ({ call, v1: body, v2: body }) satisfies Act;

const slugs = fc.uniqueArray(fc.constantFrom('a', 'b.read', 'b.write', 'c:*'), { maxLength: 3 });
const roles = fc.uniqueArray(fc.constantFrom('editor', 'reader', 'nobody'), { maxLength: 2 });
const amount = fc.integer({ min: 0, max: 1000 });
const plan = fc.oneof(
  fc.record({ interval: fc.constant('daily'), amount: fc.integer({ min: 1, max: 50 }) }),
  fc.record({
    interval: fc.constant('monthly'),
    amount: fc.integer({ min: 1, max: 50 }),
    refillDay: fc.integer({ min: 1, max: 31 }),
  }),
);
const window = { limit: fc.integer({ min: 1, max: 99 }), duration: fc.constantFrom(1000, 60_000) };
const named = fc.record({ name: fc.constantFrom('tokens', 'calls'), ...window, autoApply: fc.boolean() });
const fields = fc.record(
  {
    name: fc.constantFrom('Ada', 'Grace', null),
    externalId: fc.constantFrom('ada', 'grace', null),
    meta: fc.constantFrom({}, { plan: 'pro' }, null),
    expires: fc.constantFrom(4_000_000_000_000, null),
    enabled: fc.boolean(),
    permissions: slugs,
    roles,
  },
  { requiredKeys: [] },
);
const limits = fc.record({
  first: fc.option(fc.record(window), { nil: null }),
  others: fc.uniqueArray(named, { maxLength: 2, selector: ({ name }) => name }),
});

const update: fc.Arbitrary<Act> = fc
  .tuple(
    fields,
    fc.option(fc.record({ remaining: amount, refill: fc.option(plan, { nil: null }) })),
    fc.option(limits),
  )
  .map(([changes, credits, rates]) => {
    const list = rates?.first ? [{ ...rates.first, name: 'default', autoApply: true }] : [];
    return {
      call: 'keys.updateKey',
      v1: {
        ...{ ...changes, ...credits },
        ...(rates ? { ratelimit: rates.first, ratelimits: rates.others } : {}),
      },
      v2: {
        ...{ ...changes, ...(credits ? { credits } : {}) },
        ...(rates ? { ratelimits: [...list, ...rates.others] } : {}),
      },
    };
  });
const credits: fc.Arbitrary<Act> = fc
  .tuple(fc.constantFrom('set', 'increment', 'decrement'), fc.option(amount, { nil: null }))
  .map(([op, value]) => ({
    ...{ call: 'keys.updateRemaining', callV2: 'keys.updateCredits' },
    ...{ v1: { op, value }, v2: { operation: op, value } },
  }));
const lists = (what: 'Permissions' | 'Roles', values: fc.Arbitrary<string[]>) =>
  fc
    .tuple(fc.constantFrom('add', 'set', 'remove'), values)
    .map(([how, given]) => alike(`keys.${how}${what}`)({ [what.toLowerCase()]: given }));
const act: fc.Arbitrary<Act> = fc.oneof(
  update,
  credits,
  lists('Permissions', slugs),
  lists('Roles', roles),
  fc.constant(alike('keys.deleteKey')({})),
);

/** What is left of a key, but for what no two keys share; its status where it is gone. */
async function rest(keyId: string): Promise<unknown> {
  const { status, body } = await fleet.admin('keys.getKey', { keyId });
  if (status !== 200) return status;
  const { id: _id, keyId: _keyId, start: _start, createdAt: _created, updatedAt, sequence, ...same } = body;
  return { ...same, isChanged: [updatedAt !== undefined, sequence > 0] };
}

test('the same acts end alike in v1 and v2', async () => {
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(act, { minLength: 1, maxLength: 8 }), async (acts) => {
      const [one, two] = await Promise.all([
        post('/v1/keys.createKey', { apiId: 'shop', remaining: 10 }),
        post('/v2/keys.createKey', { apiId: 'shop', credits: { remaining: 10 } }),
      ]);
      const [first, second] = [one.body.keyId, two.body.data.keyId];
      // A repeated deletion has its receipt in v1 alone: clients of v2 expect 404.
      const deletion = acts.findIndex(({ call }) => call === 'keys.deleteKey');
      const others = acts.filter((each, i) => i <= deletion || each.call !== 'keys.deleteKey');
      for (const { call, callV2 = call, v1, v2 } of others) {
        const answers = await Promise.all([
          post(`/v1/${call}`, { keyId: first, ...v1 }),
          post(`/v2/${callV2}`, { keyId: second, ...v2 }),
        ]);
        const [status, statusV2] = answers.map((answer) => answer.status);
        expect(statusV2, `${call} ${JSON.stringify(answers.map(({ body }) => body))}`).toBe(status);
        expect(await rest(second)).toEqual(await rest(first));
        seen.add(`${call} ${status}`);
      }
    }),
    { numRuns: 60 },
  );
  for (const end of [
    'keys.updateKey 200',
    'keys.setRoles 404',
    'keys.updateRemaining 200',
    'keys.deleteKey 200',
  ])
    expect(seen).toContain(end);
});
