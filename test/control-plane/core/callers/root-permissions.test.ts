import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  API_ACTIONS,
  type ApiAction,
  PERMISSION_PATTERN,
  Permissions,
  ROOT_ACTIONS,
} from '../../../../control-plane/core/callers/root-permissions.ts';

/** `any` stands for every API that nobody has named yet. */
const APIS = ['mine', 'theirs', 'any'];
const ALL = [
  '*',
  ...['*', 'mine', 'theirs'].flatMap((api) => API_ACTIONS.map((action) => `api.${api}.${action}`)),
  ...ROOT_ACTIONS.map((action) => `root.*.${action}`),
];
const isOfApi = (permission: string) => permission.startsWith('api.');

/** Everything that a permission allows, one by one; what it may come to mean is one more. */
function rightsOf(permission: string): string[] {
  if (permission === '*') return ['everything that will ever be', ...ALL.slice(1).flatMap(rightsOf)];
  const [service, api, action] = permission.split('.');
  if (service === 'root') return [permission];
  return (api === '*' ? APIS : [api]).map((one) => `api.${one}.${action}`);
}
const lists = fc.array(fc.constantFrom(...ALL), { maxLength: 4 });

describe('permissions', () => {
  test('cover a list where they allow all of it', () => {
    fc.assert(
      fc.property(lists, lists, (granted, wanted) => {
        const mine = new Set(granted.flatMap(rightsOf));
        const expected = wanted.flatMap(rightsOf).every((right) => mine.has(right));
        expect(new Permissions(granted).covers(wanted)).toBe(expected);
      }),
      { numRuns: 3000 },
    );
  });

  test('cover no list with `*` unless they are `*`', () => {
    const held = ALL.slice(1);
    for (const place of held.keys()) {
      const wanted = held.toSpliced(place, 0, '*');
      expect(new Permissions(held).covers(wanted), `${place}`).toBe(false);
      expect(new Permissions(['*']).covers(wanted)).toBe(true);
    }
  });

  test('allow an action on a named API or on all', () => {
    fc.assert(
      fc.property(
        lists,
        fc.constantFrom(...APIS, '*'),
        fc.constantFrom(...API_ACTIONS),
        (granted, api, action) => {
          const wanted = ['*', `api.*.${action}`, `api.${api}.${action}`];
          expect(new Permissions(granted).allows(api, action)).toBe(
            wanted.some((one) => granted.includes(one)),
          );
        },
      ),
      { numRuns: 1000 },
    );
  });

  test('touch an API by any action on it', () => {
    for (const permission of ALL) {
      const touched = APIS.filter((api) => new Permissions([permission]).touches(api));
      const [, api] = permission.split('.');
      const expected = permission === '*' || api === '*' ? APIS : [api];
      expect(touched, permission).toEqual(isOfApi(permission) || permission === '*' ? expected : []);
    }
    expect(new Permissions([]).touches('mine')).toBe(false);
  });

  test('without an API stand each for itself', () => {
    for (const action of ROOT_ACTIONS) {
      const allowing = ALL.filter((permission) => new Permissions([permission]).allowsRoot(action));
      expect(allowing).toEqual(['*', `root.*.${action}`]);
    }
  });
});

test('names a known service and action, or `*`', () => {
  const pattern = new RegExp(PERMISSION_PATTERN);
  const action: ApiAction = 'read_key';
  const good = [...ALL, `api.${'a'.repeat(64)}.${action}`, `api.A_z-9.${action}`];
  for (const permission of good) expect(permission).toMatch(pattern);
  const bad = [
    '',
    '**',
    '*.',
    'api.*',
    'api.*.*',
    'api.*.fly',
    `api..${action}`,
    `api.${'a'.repeat(65)}.${action}`,
    `api.a b.${action}`,
    `api.a*.${action}`,
    `api.a.${action}.more`,
    ` api.a.${action}`,
    `api.a.${action}\n*`,
    'api.*.read_audit',
    `root.*.${action}`,
    'root.mine.read_audit',
    'root.*.*',
  ];
  for (const permission of bad) expect(permission).not.toMatch(pattern);
});
