import { registerHooks } from 'node:module';
import {
  CREDIT_SEEDS,
  IDENTITY_SEEDS,
  LIMIT_SEEDS,
  REFILL_SEEDS,
  REROLL_SEEDS,
  ROLE_SEEDS,
  ROOT_KEY_SEEDS,
} from './plan.ts';

/** The code with one of its precautions left out. */
export interface Mutant {
  /** The first that showed it when this was written; any change of the simulation may make it another. */
  readonly seed: number;
  /** From the root of the repository. */
  readonly file: string;
  /** Source text, each found exactly once, and what stands there instead. */
  readonly edits: readonly (readonly [text: string, instead: string])[];
}

const VERIFIER = 'verifier/core/follower.ts';
const FENCE = 'control-plane/writer/fence.ts';
const WRITER = 'control-plane/writer/writer.ts';
const REDIS = 'test/simulation/redis.ts';
const POOLS = 'test/simulation/pools.ts';
const PORTS = 'test/simulation/ports.ts';

/** Of what all keys are told by. */
const OF_COHERENCE: Readonly<Record<string, Mutant>> = {
  'no fill guard': {
    seed: 3,
    file: VERIFIER,
    edits: [
      [
        'if (reply.sequence !== this.position || this.#log.epoch !== epoch)',
        'if (this.#log.epoch !== epoch)',
      ],
    ],
  },
  'no lease': {
    seed: 3,
    file: 'verifier/core/lease.ts',
    edits: [['latestCheck.monotonicMs < this.#untilMonotonicMs &&', 'this.#untilMonotonicMs > 0 ||']],
  },
  'timer-driven lease': {
    seed: 8,
    file: 'verifier/core/lease.ts',
    edits: [
      [
        'return latestCheck.monotonicMs < this.#untilMonotonicMs && latestCheck.wallMs < this.#untilWallMs',
        'return this.#untilMonotonicMs > 0',
      ],
      [
        'this.#untilMonotonicMs = sentAt.monotonicMs + lengthMs;',
        `const until = (this.#untilMonotonicMs = sentAt.monotonicMs + lengthMs);
         this.#clock.after(until - this.#clock.monotonicMs(), () => {
           if (this.#untilMonotonicMs === until) this.cut();
         });`,
      ],
    ],
  },
  'lease from reply time': {
    seed: 49,
    file: VERIFIER,
    edits: [
      [
        'epoch.lease.extend(sentAt, reply.leaseMs)',
        'epoch.lease.extend({ wallMs: this.#options.clock.wallMs(), monotonicMs: this.#options.clock.monotonicMs() }, reply.leaseMs)',
      ],
    ],
  },
  'ack when sent': {
    seed: 2,
    file: REDIS,
    edits: [
      [
        'if (news) api.members.set(member, noted)',
        'api.members.set(member, entries.at(-1)?.sequence ?? position)',
      ],
    ],
  },
  'no registration': {
    seed: 1,
    file: REDIS,
    edits: [
      ['    api.members.set(member, api.sequence);\n', ''],
      ['const score = api.members.get(member);', 'const score: number = position;'],
    ],
  },
  'no-op of another server': {
    seed: 1064616,
    file: FENCE,
    edits: [['names: 0, later: noop }', 'names: 0 }']],
  },
  'no second wait': {
    seed: 434,
    file: FENCE,
    edits: [['await pause(this.#clock, afterMs, this.#stop.signal);', 'void afterMs;']],
  },
  'no record of a late lease': {
    seed: 434,
    file: REDIS,
    edits: [['acknowledged < api.sequence ? acknowledged + 0.5 : acknowledged', 'acknowledged']],
  },
  'late leases believed after a failover': {
    seed: 7488,
    file: PORTS,
    edits: [['isWriter ??= state.server === server;', "isWriter ??= server !== '';"]],
  },
  'kill without XX': {
    seed: 63,
    // In one script nobody can leave between the look and the kill; so in two.
    file: PORTS,
    edits: [
      [
        'let isWriter: boolean | undefined;\n    return this.run(apiId, (state) => {\n      isWriter ??= state.server === server;\n      return state.close(apiId, sequence, hash, kill, isWriter);\n    });',
        `const change = { apiId, sequence, hash, keyId: '', replicated: false, names: 100 };
         return this.run(apiId, (state) => state.check(change)).then((logStatus) =>
           logStatus.state === 'LOST'
             ? logStatus
             : this.run(apiId, (state) => {
                 for (const name of logStatus.names) state.api(apiId).members.set(name, kill);
                 return state.close(apiId, sequence, hash, kill, false);
               }),
         );`,
      ],
    ],
  },
  'no prevHash check': {
    seed: 354,
    file: 'verifier/core/log-prefix.ts',
    edits: [[' && change.previousHash === this.#hash', '']],
  },
  'no hash chain': {
    seed: 1,
    file: REDIS,
    edits: [[`sha1(\`\${previousHash}|`, 'sha1(`|']],
  },
  'creations not compared': {
    seed: 407,
    file: REDIS,
    edits: [["if (creations !== 'OK') return read({ ...nothing, status: creations });", '']],
  },
  'creations only counted': {
    seed: 9018,
    file: REDIS,
    edits: [
      [
        "return creation.hash === hash ? 'OK' : 'DIVERGED';",
        "return hash === undefined ? 'DIVERGED' : 'OK';",
      ],
    ],
  },
  'no digest of a long state': {
    seed: 102,
    file: REDIS,
    edits: [["['forget', secretHash, sha1(payload)]", "['forget', secretHash]"]],
  },
  'trimmed is intact': {
    seed: 102,
    file: FENCE,
    edits: [
      ["if (logStatus.state === 'TRIMMED' && !change.replicated) return this.#settle(change, 'lost');", ''],
    ],
  },
  'no gate': {
    seed: 28,
    file: REDIS,
    edits: [["if (old.length > 0) return { status: 'TOO_OLD', needs, followers: old.length, names };", '']],
  },
  'older verifiers register': {
    seed: 17,
    file: REDIS,
    edits: [
      ['if (protocolOf(member) < api.needs) return read(undefined);', ''],
      [' || protocolOf(member) < api.needs)', ')'],
    ],
  },
  'F without X': {
    seed: 432,
    file: FENCE,
    edits: [['return leaseMs + deposedMs +', 'return leaseMs + 0 * deposedMs +']],
  },
  'REGISTER without WAIT': {
    seed: 708,
    file: PORTS,
    edits: [
      ["'register', this.#apiId, script, replicas);", "'register', this.#apiId, script, 0);"],
      [
        "if (confirmed < replicas) throw unavailable('not all required replicas confirmed the registration');",
        '',
      ],
    ],
  },
  'complete without WAIT on the write': {
    seed: 24,
    file: FENCE,
    edits: [['if (!change.replicated) return false;', '']],
  },
  'no nonce': {
    seed: 21,
    file: VERIFIER,
    edits: [
      ['if (reply.nonce !== nonce) return this.#desynchronised(session);', ''],
      ['if (reply.nonce !== request.nonce) return this.#desynchronised(session);', ''],
    ],
  },
  'no key in the reply of a look-up': {
    seed: 245,
    file: PORTS,
    edits: [['if (name !== key) {', "if (name === '') {"]],
  },
  'first of a batch instead of the last': {
    seed: 111,
    file: WRITER,
    edits: [['this.#watch(last, written.length)', 'this.#watch(written[0] ?? last, written.length)']],
  },
  'a key of a batch left out': {
    seed: 54,
    file: WRITER,
    edits: [['written.map(async', 'written.slice(-1).map(async']],
  },
  'batch over several connections': {
    seed: 194,
    file: PORTS,
    edits: [
      ["const connection = await this.#lanes.get('batch');\n", ''],
      [
        'writes.map((write, i) => {',
        'writes.map(async (write, i) => {\n        const connection = await this.#lanes.get("batch-" + i);',
      ],
    ],
  },
  'no margin for clocks': {
    seed: 38,
    file: FENCE,
    edits: [['Math.ceil(DRIFT * leaseMs)', '0 * DRIFT']],
  },
  'Lf lowered at once': {
    seed: 91,
    file: 'control-plane/writer/sweep.ts',
    edits: [
      ['logger.info({ apiId, fromMs', "await set('fence-last', token);\n      logger.info({ apiId, fromMs"],
    ],
  },
};

/** The same for credits. */
const OF_CREDITS: Readonly<Record<string, Mutant>> = {
  'refund after a crash': {
    seed: CREDIT_SEEDS + 1,
    file: POOLS,
    edits: [
      [
        'live += granted - spent - spoken;',
        'live += granted - spent - spoken;\n      } else if (granted > spent) {\n        this.free += granted - spent;\n        this.holders.set(name, { granted: spent, spent, turn, spoken: 0 });',
      ],
    ],
  },
  'spent credits forgotten': {
    seed: CREDIT_SEEDS + 14,
    file: 'verifier/core/pools.ts',
    edits: [
      [
        'if (pool.isSettled) this.#pools.delete(id);',
        'this.#pools.delete(id); if (pool.isSettled) continue;',
      ],
    ],
  },
  'a 503 costs credits': {
    seed: CREDIT_SEEDS + 11,
    file: 'verifier/core/spending.ts',
    edits: [
      [
        '          if (waiter.over) return;\n',
        '          if (waiter.over) {\n            const late = isOver ? undefined : this.#cache.get(digest);\n            if (late) this.#verdicts.judge(late, question);\n            return;\n          }\n',
      ],
    ],
  },
  'slices are kept': {
    seed: CREDIT_SEEDS + 7,
    file: 'verifier/core/pools.ts',
    edits: [['else pool.giveBack();', '']],
  },
};

const SHARED_LOG = 'verifier/core/shared-log.ts';
const SHARED_RECORDS = 'verifier/core/shared-records.ts';

/** The same for keys that have roles. */
const OF_ROLES: Readonly<Record<string, Mutant>> = {
  'one lease': {
    seed: ROLE_SEEDS,
    file: SHARED_LOG,
    edits: [['return join.lease.holds() ? join : undefined;', 'return join;']],
  },
  'a role without a fence': {
    seed: ROLE_SEEDS + 1,
    file: 'test/simulation/redis.ts',
    edits: [['laggards: behind.length,', "laggards: apiId === '!ws' && entry?.payload ? 0 : behind.length,"]],
  },
  'stale effective permissions': {
    seed: ROLE_SEEDS,
    file: SHARED_RECORDS,
    edits: [['for (const state of this.states) if (state.isVoid) return false;', '']],
  },
  'reused id of a role': {
    seed: ROLE_SEEDS + 23,
    file: 'test/simulation/roles.ts',
    edits: [['const keyId = this.#newId();', 'const keyId = [...this.#gone].at(-1) ?? this.#newId();']],
  },
};

/** The same for keys whose owners have identities. */
const OF_IDENTITIES: Readonly<Record<string, Mutant>> = {
  'identity ignored': {
    seed: IDENTITY_SEEDS,
    file: 'shared/contract/rules.ts',
    edits: [['key.identity?.enabled !== false', 'true']],
  },
  'absence of an identity kept': {
    seed: IDENTITY_SEEDS,
    file: SHARED_RECORDS,
    edits: [
      [
        'const state = this.#states.peek(id);\n',
        'const state = this.#states.peek(id);\n    if (state && !state.record) return undefined;\n',
      ],
    ],
  },
  'absence of all identities kept': {
    seed: IDENTITY_SEEDS,
    file: SHARED_RECORDS,
    edits: [['if (this.#noIdentity && id.startsWith(IDENTITY)) {', "if (this.#noIdentity && id === '') {"]],
  },
  'deleted identity kept': {
    seed: IDENTITY_SEEDS + 3,
    file: SHARED_RECORDS,
    edits: [
      ['return this.#end(id)?.record?.pools ?? [];', 'return this.#states.peek(id)?.record?.pools ?? [];'],
    ],
  },
  'a creation without a fence': {
    seed: IDENTITY_SEEDS,
    file: 'test/simulation/redis.ts',
    edits: [
      [
        'laggards: behind.length,',
        "laggards: apiId === '!ws' && entry && api.records.get(entry.keyId)?.['c'] && !api.records.get(entry.keyId)?.['u'] ? 0 : behind.length,",
      ],
    ],
  },
  'state from before a restart': {
    seed: IDENTITY_SEEDS + 5,
    file: SHARED_RECORDS,
    edits: [['return state?.epoch.current ? state : undefined;', 'return state;']],
  },
  'verdict about an evicted key': {
    seed: IDENTITY_SEEDS + 84,
    file: 'verifier/core/verifier.ts',
    edits: [
      [
        'if (this.#cache.get(digest) === result && this.#verdicts.isKnown(result)) return result;',
        'return result;',
      ],
    ],
  },
  'identity in all APIs': {
    seed: IDENTITY_SEEDS,
    file: SHARED_RECORDS,
    edits: [['if (!this.#apiIds.has(apiId)) return undefined;', '']],
  },
};

/** The same for keys that are rerolled. */
const OF_REROLLS: Readonly<Record<string, Mutant>> = {
  'credits copied to the successor': {
    seed: REROLL_SEEDS + 2,
    file: 'test/simulation/redis.ts',
    edits: [
      [
        'if (shared) shared.keys = [...(shared.keys.length === 0 ? [keyId] : shared.keys), made];',
        'if (shared) {\n      const copy = "copy-" + made;\n      api.pools.set(copy, shared.clone());\n      api.records.set(made, { ...api.records.get(made), q: copy });\n    }',
      ],
    ],
  },
  'a longer life': {
    seed: REROLL_SEEDS + 2,
    file: 'test/simulation/redis.ts',
    edits: [['expires && Number(expires) < latestMs ? expires : String(latestMs)', 'String(latestMs)']],
  },
  'repeated change of credits': {
    seed: REROLL_SEEDS + 2,
    file: 'test/simulation/redis.ts',
    edits: [['if (known)', 'if (known && known.asked !== what)']],
  },
  'credits deleted with one key': {
    seed: REROLL_SEEDS + 2,
    file: 'test/simulation/redis.ts',
    edits: [['if (pool.keys.length === 0) api.pools.delete(id);', 'api.pools.delete(id);']],
  },
  'credits set for one key': {
    seed: REROLL_SEEDS + 2,
    file: 'test/simulation/redis.ts',
    edits: [['if (other === keyId) continue;', 'if (other !== undefined) continue;']],
  },
  'silent end of the old key': {
    seed: REROLL_SEEDS,
    file: 'test/simulation/redis.ts',
    edits: [
      [
        "if (operation === 'delete') return encode(['forget', secretHash]);",
        "if (operation === 'delete') return encode(['forget', secretHash]);\n    if (state['x'] === '1') return '';",
      ],
    ],
  },
};

/** The same for credits that are refilled. */
const OF_REFILLS: Readonly<Record<string, Mutant>> = {
  'refill after a set': {
    seed: REFILL_SEEDS + 1,
    file: 'test/simulation/redis.ts',
    edits: [
      [
        'pool?.settle(api, nowMs);\n    const refill',
        "if (change.op !== 'set') pool?.settle(api, nowMs);\n    const refill",
      ],
    ],
  },
  'due refill dropped': {
    seed: REFILL_SEEDS + 1,
    file: 'test/simulation/redis.ts',
    edits: [
      [
        'pool?.settle(api, nowMs);\n    const refill',
        "if (change.op !== 'refill') pool?.settle(api, nowMs);\n    const refill",
      ],
    ],
  },
  'a refill for each missed day': {
    seed: REFILL_SEEDS,
    file: POOLS,
    edits: [
      [
        'this.dueAtMs = nextOf(this.refill, nowMs);\n    this.refills++;',
        'this.dueAtMs += this.refill.periodMs;\n    this.refills++;',
      ],
    ],
  },
  'clock set back is believed': {
    seed: REFILL_SEEDS,
    file: POOLS,
    edits: [
      [
        'if (!this.refill || nowMs < this.dueAtMs) return;',
        'if (!this.refill || (nowMs < this.dueAtMs && nowMs > this.dueAtMs - 2 * this.refill.periodMs)) return;',
      ],
    ],
  },
};

const WINDOWS = 'test/simulation/windows.ts';

/** The same for rate limits. */
const OF_LIMITS: Readonly<Record<string, Mutant>> = {
  'a grant outlives its window': {
    seed: LIMIT_SEEDS + 3,
    file: 'verifier/core/pool.ts',
    edits: [['Math.min(leftMs, GRANTED_MS) / DRIFT', 'GRANTED_MS']],
  },
  'window from reply time': {
    seed: LIMIT_SEEDS + 15,
    file: 'verifier/core/pool.ts',
    edits: [
      [
        'const { monotonicMs, wallMs } = this.#sentAt;',
        'const { monotonicMs, wallMs } = instant(this.#clock);',
      ],
    ],
  },
  'reports about another window count': {
    seed: LIMIT_SEEDS + 14,
    file: WINDOWS,
    edits: [['if (turn.spent !== undefined && number !== this.number) [spent, kept] = [0, 0];', '']],
  },
  'forgotten uses are unspent': {
    seed: LIMIT_SEEDS + 362,
    file: WINDOWS,
    edits: [['turn.spent ?? mine.granted', 'turn.spent ?? mine.spent']],
  },
  'windows do not slide': {
    seed: LIMIT_SEEDS,
    file: WINDOWS,
    edits: [['this.before * Math.min(1, leftMs / durationMs)', '0']],
  },
  "windows by a machine's clock": {
    seed: LIMIT_SEEDS,
    file: PORTS,
    edits: [['atMs ??= network.redisMs;', 'atMs ??= this.#lanes.machine.wallMs();']],
  },
  'requests without a use': {
    seed: LIMIT_SEEDS,
    file: 'verifier/core/allowance.ts',
    edits: [
      [
        'for (const { pool, cost } of needs) pool.take(cost, nowMs);',
        'for (const { pool, cost, limit } of needs) if (!limit) pool.take(cost, nowMs);',
      ],
    ],
  },
};

/** The same for root keys that verifiers ask for. */
const OF_ROOT_KEYS: Readonly<Record<string, Mutant>> = {
  'root keys after the lease': {
    seed: ROOT_KEY_SEEDS + 5,
    file: SHARED_LOG,
    edits: [['return state?.epoch.lease.holds() ? state.scopes : undefined;', 'return state?.scopes;']],
  },
  'root keys of an earlier publication': {
    seed: ROOT_KEY_SEEDS + 1,
    file: SHARED_RECORDS,
    edits: [
      [
        'this.#states.set(id, new State(epoch, new Entry(epoch, id, state)));',
        "this.#states.set(id, id === 'rootkeys' ? before : new State(epoch, new Entry(epoch, id, state)));",
      ],
    ],
  },
  'a publication without a fence': {
    seed: ROOT_KEY_SEEDS + 1,
    file: 'test/simulation/redis.ts',
    edits: [['laggards: behind.length,', "laggards: entry?.keyId === 'rootkeys' ? 0 : behind.length,"]],
  },
};

/** By what is left out. Scripts are changed in the simulated Redis, everything else in the code that ships. */
export const MUTANTS: Readonly<Record<string, Mutant>> = {
  ...OF_COHERENCE,
  ...OF_CREDITS,
  ...OF_LIMITS,
  ...OF_REROLLS,
  ...OF_ROLES,
  ...OF_IDENTITIES,
  ...OF_ROOT_KEYS,
  ...OF_REFILLS,
};

/** Makes every later import see the mutant. Throws, at that import, when the code has changed under it. */
export function install(name: string): void {
  const mutant = MUTANTS[name];
  if (!mutant) throw new Error(`no such mutant; there are: ${Object.keys(MUTANTS).join(', ')}`);
  const file = new URL(`../../${mutant.file}`, import.meta.url).href;
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      if (url !== file) return loaded;
      let source = String(loaded.source);
      for (const [text, instead] of mutant.edits) {
        const parts = source.split(text);
        if (parts.length !== 2) throw new Error(`mutant "${name}": ${mutant.file} has not once: ${text}`);
        source = parts.join(instead);
      }
      return { ...loaded, source };
    },
  });
}
