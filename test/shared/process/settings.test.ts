import { describe, expect, test } from 'vitest';
import {
  ConfigError,
  choice,
  flag,
  httpUrl,
  integer,
  list,
  loadConfig,
  port,
  secret,
  text,
} from '../../../shared/process/load-config.ts';

/** Each kind of setting by itself: what it takes, what it refuses, and that a refusal names it. */
const settings = {
  N: integer(-5, 10, 'ms', 3).help('h'),
  PORT: port(80).help('h'),
  TEXT: text('t').help('h'),
  URL: httpUrl().help('h'),
  ON: flag(true).help('h'),
  OFF: flag(false).help('h'),
  ONE: choice(['a', 'b'], 'b').help('h'),
  LIST: list(/^[a-z]+$/, 'letters', 'x').help('h'),
  SECRET: secret('none', 'no spaces', (value) => {
    if (value.includes(' ')) throw new Error('has a space');
    return value.length;
  }).help('h'),
};
const load = (env: Record<string, string>) => loadConfig(settings, env);
const faultsOf = (env: Record<string, string>) => {
  try {
    load(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  return [];
};

test('what is not set has its default', () => {
  const defaults = {
    N: 3,
    PORT: 80,
    TEXT: 't',
    URL: undefined,
    ON: true,
    OFF: false,
    ONE: 'b',
    LIST: ['x'],
    SECRET: 4,
    readSecretsAgain: expect.any(Function),
  };
  expect(load({})).toEqual(defaults);
  expect(load(Object.fromEntries(Object.keys(settings).map((name) => [name, ''])))).toEqual(defaults);
  expect(Object.isFrozen(load({}))).toBe(true);
});

describe('a setting takes', () => {
  test.each([
    ['N', '-5', -5],
    ['N', '10', 10],
    ['PORT', '0', 0],
    ['PORT', '65535', 65_535],
    ['TEXT', ' any text ', ' any text '],
    ['ON', 'false', false],
    ['OFF', 'true', true],
    ['ONE', 'a', 'a'],
    ['LIST', 'b, a,,b', ['b', 'a']],
    ['SECRET', 'four!', 5],
  ])('%s=%s', (name, given, value) => {
    expect(load({ [name]: given })).toMatchObject({ [name]: value });
  });

  test.each(['http://a', 'https://a:8443/base/', 'http://[::1]:80/'])('URL=%s', (given) => {
    expect(load({ URL: given }).URL?.href).toBe(new URL(given).href);
  });
});

describe('a setting refuses', () => {
  test.each([
    ['N', '-6'],
    ['N', '11'],
    ['N', '1.5'],
    ['N', '1e0'],
    ['N', ' 1'],
    ['N', '1 '],
    ['N', '+1'],
    ['N', 'x'],
    ['PORT', '-1'],
    ['PORT', '65536'],
    ['ON', 'yes'],
    ['ON', 'TRUE'],
    ['ONE', 'c'],
    ['ONE', 'A'],
    ['LIST', 'a,B'],
    ['LIST', 'a b'],
  ])('%s=%s, and shows it', (name, given) => {
    expect(faultsOf({ [name]: given })).toEqual([expect.stringMatching(`^${name}: `)]);
    expect(faultsOf({ [name]: given })[0]).toContain('is not allowed');
  });

  test.each([
    ['SECRET', 'swordfish with a space'],
    ['URL', 'swordfish'],
    ['URL', 'ftp://swordfish'],
    ['URL', 'xhttp://swordfish'],
    ['URL', 'http://swordfish@a'],
    ['URL', 'http://:swordfish@a'],
    ['URL', 'http://a/?swordfish'],
    ['URL', 'http://a/#swordfish'],
  ])('%s=%s, without showing it', (name, given) => {
    const [fault, ...more] = faultsOf({ [name]: given });
    expect(more).toEqual([]);
    expect(fault).toMatch(new RegExp(`^${name}: .*\\(.+\\)$`));
    expect(fault).not.toContain('swordfish');
  });

  test('all that is wrong at once', () => {
    expect(faultsOf({ N: 'x', ON: 'x', SECRET: ' ' }).map((fault) => fault.split(':')[0])).toEqual([
      'N',
      'ON',
      'SECRET',
    ]);
  });
});

test('a setting says its rule with limits and unit', () => {
  expect(Object.values(settings).map(({ rule }) => rule)).toEqual([
    'integer -5..10 ms',
    'integer 0..65535',
    'text',
    'http:// or https:// URL without user, query or fragment',
    'true or false',
    'true or false',
    'a, b',
    'letters',
    'no spaces',
  ]);
  expect(settings.PORT.help).toBe('h; 0 = any free one');
});
