import type { Chance } from './world.ts';

type Fields = Record<string, unknown>;

const DURATIONS = [1000, '90s', '1m', 3_600_000, '1d', '31d'];
const ANCHORS: Readonly<Record<string, Fields[]>> = {
  hour: [{ offsetMinutes: 30 }],
  day: [{ hour: 3 }, { hour: 0, offsetMinutes: -60 }],
  week: [{ weekday: 5 }, { weekday: 1, hour: 23 }],
  month: [{ day: 31 }, { day: 1, offsetMinutes: 840 }],
};
const WORDS = [
  'plain',
  'with blank',
  '',
  'ä ö 漢',
  '0',
  'no',
  '~',
  '2030-01-01',
  'a: b',
  '# c',
  '"',
  "'",
  '- d',
  '\u202e',
];

/** Draws values of every field that files may declare, also at the ends of their ranges. */
export class States {
  readonly #chance: Chance;
  readonly #suffix: string;

  constructor(chance: Chance, suffix: string) {
    this.#chance = chance;
    this.#suffix = suffix;
  }

  #own(name: string): string {
    return `${name}-${this.#suffix}`;
  }

  /** Returns the fields, each with the given chance; a value that is undefined is left out. */
  #maybe(fields: Readonly<Record<string, () => unknown>>, part = 0.5): Fields {
    const entries = Object.entries(fields).filter(() => this.#chance.is(part));
    return Object.fromEntries(
      entries.map(([name, draw]) => [name, draw()]).filter(([, value]) => value !== undefined),
    );
  }

  #limit(): Fields {
    const chance = this.#chance;
    const isQuota = chance.is(0.5);
    const interval = chance.of(['hour', 'day', 'week', 'month']);
    return {
      limit: chance.of([1, 60_000, 1_000_000_000]),
      ...(isQuota
        ? {
            interval,
            ...this.#maybe({ anchor: () => chance.of(ANCHORS[interval] ?? []), thresholds: () => [50, 90] }),
          }
        : { duration: chance.of(DURATIONS) }),
      ...this.#maybe({ async: () => chance.is(0.5) }),
    };
  }

  #limits(isOfRole: boolean): Fields[] {
    return this.#chance.some(['r1', 'r2', 'r3']).map((name) => ({
      name,
      ...this.#limit(),
      ...this.#maybe({
        autoApply: () => this.#chance.is(0.5),
        ...(isOfRole ? { per: () => this.#chance.of(['key', 'identity']) } : {}),
      }),
    }));
  }

  #places(isOfRole: boolean): Fields[] {
    return this.#chance.some(['c1', 'c2']).map((name) => ({
      ...{ name, limit: this.#chance.of([1, 1_000_000]) },
      ...(isOfRole ? this.#maybe({ per: () => this.#chance.of(['key', 'identity']) }) : {}),
    }));
  }

  #credits(): Fields {
    const chance = this.#chance;
    const interval = chance.of(['daily', 'weekly', 'monthly']);
    const anchors = { daily: 'day', weekly: 'week', monthly: 'month' };
    return {
      remaining: chance.of([0, 7, 1_000_000_000_000]),
      ...this.#maybe({
        refill: () => ({
          ...{ interval, amount: chance.of([1, 500]) },
          ...this.#maybe({ anchor: () => chance.of(ANCHORS[Object(anchors)[interval]] ?? []) }),
        }),
        thresholds: () => [10, 80],
      }),
    };
  }

  #meta(): Fields {
    const chance = this.#chance;
    const value = (depth: number): unknown =>
      chance.of<() => unknown>([
        () => chance.of(WORDS),
        () => chance.of([0, -1.5, 9_007_199_254_740_991]),
        () => chance.of([true, false, null]),
        () => (depth > 2 ? [] : Array.from({ length: chance.below(4) }, () => value(depth + 1))),
        () => (depth > 2 ? {} : Object.fromEntries(chance.some(WORDS).map((w) => [w, value(depth + 1)]))),
      ])();
    return {
      ...this.#maybe({
        order: () =>
          chance.of([
            ['b', 'a'],
            ['a', 'b'],
          ]),
      }),
      a: value(0),
      b: value(0),
    };
  }

  /** Draws a state of all kinds. */
  draw(): Fields[] {
    const chance = this.#chance;
    const apis = ['a1', 'a2'].map((api) => this.#own(api));
    const roles = chance.some(['r1', 'r2', 'r 3']).map((role) => this.#own(role));
    const permissions = ['files.read', 'files.*', 'x:y'];
    const lifetimes = chance.of<() => Fields>([
      () => ({}),
      () => ({ defaultLifetimeMs: '30d' }),
      () => ({ maxLifetimeMs: 3_155_760_000_000 }),
    ])();
    return [
      ...apis.map((apiId) => ({
        ...{ kind: 'Api', apiId },
        ...this.#maybe({
          name: () => chance.of(['Shop', 'ä "b"']),
          defaultPrefix: () => 'pre',
          defaultBytes: () => chance.of([16, 255]),
          disableUnusedAfterMs: () => chance.of(['1d', 86_400_001]),
          selfRevocation: () => chance.is(0.5),
        }),
        ...lifetimes,
      })),
      ...chance.some(['p1', 'p:2']).map((slug) => ({
        ...{ kind: 'Permission', slug: this.#own(slug) },
        ...this.#maybe({ name: () => 'A name', description: () => chance.of(['Some', '', 'a: b']) }),
      })),
      ...roles.map((name) => ({
        ...{ kind: 'Role', name },
        ...this.#maybe({
          description: () => chance.of(['Some', 'a: b\nc']),
          permissions: () => chance.some(permissions),
          ratelimits: () => this.#limits(true),
          concurrency: () => this.#places(true),
        }),
      })),
      ...chance.some(['i1', 'i 2']).map((name) => ({
        ...{ kind: 'Identity', externalId: this.#own(name) },
        ...this.#maybe({
          enabled: () => true,
          meta: () => this.#meta(),
          ratelimits: () => this.#limits(false),
          concurrency: () => this.#places(false),
          roles: () => chance.some(roles),
          credits: () => this.#credits(),
          apiIds: () => [chance.of(apis)],
        }),
      })),
      ...chance.some(['k1', 'k2', 'k 3']).map((name) => ({
        ...{ kind: 'Key', apiId: chance.of(apis), name },
        ...this.#maybe({
          enabled: () => chance.is(0.5),
          meta: () => this.#meta(),
          externalId: () => this.#own(chance.of(['i1', 'none'])),
          environment: () => chance.of(['live', 'te st']),
          ratelimit: () => this.#limit(),
          ratelimits: () => this.#limits(false),
          concurrency: () => this.#places(false),
          allowedIps: () => chance.some(['192.0.2.7', '2001:DB8::/32', '10.0.0.0/8']),
          allowedOrigins: () => ['https://a.example.com'],
          permissions: () => chance.some(permissions),
          roles: () => chance.some(roles),
        }),
        expires: chance.of(['2099-12-31T23:59:59Z', '2030-02-28T23:00:00.5+02:00', 4_000_000_000_001]),
        ...(chance.is(0.4) ? this.#credits() : {}),
        secret: { file: `secrets/${name}` },
      })),
      ...chance.some(['w1', 'w 2']).map((name) => ({
        ...{ kind: 'Webhook', name: this.#own(name), url: 'https://hooks.example.com/?a=b#' },
        ...this.#maybe({
          enabled: () => chance.is(0.5),
          events: () => chance.of([['key.*'], ['key.created', 'role.*'], ['*']]),
          apiIds: () => [chance.of(apis)],
        }),
      })),
    ];
  }
}
