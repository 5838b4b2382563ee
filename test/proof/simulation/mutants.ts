import fs from 'node:fs';
import { registerHooks, syncBuiltinESMExports } from 'node:module';
import {
  AT_LEAST_SEEDS,
  CHANGING_LIMIT_SEEDS,
  CHANGING_PLAN_SEEDS,
  CREDIT_SEEDS,
  DELETION_SEEDS,
  HELD_LIMIT_SEEDS,
  HOLD_SEEDS,
  IDENTITY_SEEDS,
  LATE_TOKEN_SEEDS,
  LIMIT_SEEDS,
  NEARBY_SEEDS,
  REFILL_SEEDS,
  REROLL_SEEDS,
  ROLE_SEEDS,
  ROOT_KEY_SEEDS,
  SHARED_CREDIT_SEEDS,
  SHARED_LIMIT_SEEDS,
  TOKEN_SEEDS,
} from './plan.ts';

/** The code with one of its precautions left out. */
export interface Mutant {
  /** What the code does without the precaution, and the invariant that its seed violates; another seed may violate another. */
  readonly breaks: string;
  /** The first that showed it when this was written; any change of the simulation may make it another. */
  readonly seed: number;
  /** From the root of the repository: a module, or a script that Redis runs. */
  readonly file: string;
  /** Source text, each found exactly once, and what stands there instead; the file, where it is another one. */
  readonly edits: readonly (readonly [text: string, instead: string, file?: string])[];
}

const VERIFIER = 'shared/protocol/follower/follower.ts';
const FENCE = 'shared/protocol/writer/fence.ts';
const WRITER = 'shared/protocol/writer/writer.ts';
const SYNC = 'shared/protocol/follower/sync.lua';
const HISTORY = 'shared/protocol/history/history.lua';
const READ_NEARBY = 'shared/protocol/follower/read-nearby.lua';
const EXCHANGE = 'shared/metering/exchange.lua';
const CREDITS = 'shared/metering/credits.lua';
const CHANGE = 'shared/protocol/log/change.lua';
const FENCE_CHECK = 'shared/protocol/log/fence-check.lua';
const POOL = 'shared/metering/pool.ts';
const PORTS = 'test/proof/simulation/ports.ts';

/** Of look-ups at a replica. */
const OF_NEARBY: Readonly<Record<string, Mutant>> = {
  'late replica': {
    breaks: 'A record counts although the replica lacks changes that the follower has. (I9)',
    seed: NEARBY_SEEDS,
    file: READ_NEARBY,
    edits: [['refused or differs(', "refused or tonumber(position) <= tonumber(s or '0') and differs("]],
  },
  'later change at a replica': {
    breaks: 'A record counts although the replica has a later change of it. (I9)',
    seed: NEARBY_SEEDS,
    file: READ_NEARBY,
    edits: [["if entry[2][4] == keyId then return {'OTHER', nonce} end", '']],
  },
  'position of the request': {
    breaks: 'A record from a replica counts although the follower has gone on since it asked. (I9)',
    seed: NEARBY_SEEDS,
    file: VERIFIER,
    edits: [['epoch || prefix.position !== position)', 'epoch)']],
  },
  'another history at a replica': {
    breaks: 'The replica compares the positions of the log, not the hashes. (I9)',
    seed: NEARBY_SEEDS + 24,
    file: READ_NEARBY,
    edits: [
      [
        "differs(s or '0', h or '', g or '0-')",
        "tonumber(position) > tonumber(s or '0') or differs(position, hash, g or '0-')",
      ],
    ],
  },
  'any creation at a replica': {
    breaks: 'A key from a replica counts although the follower has not seen its creation. (I11)',
    seed: NEARBY_SEEDS + 1452,
    file: READ_NEARBY,
    edits: [["or tonumber(found[2]) > tonumber(string.match(mark, '^%d+'))", '']],
  },
  'creations at a replica only counted': {
    breaks: 'A replica compares the numbers of creation marks, not their hashes. (I11)',
    seed: NEARBY_SEEDS + 3468,
    file: READ_NEARBY,
    edits: [["differs(s or '0', h or '', g or '0-')", "differs(s or '0', h or '', mark)"]],
  },
  'lease from a replica': {
    breaks: 'An answer of a replica extends the lease. (I8)',
    seed: NEARBY_SEEDS + 6,
    file: VERIFIER,
    edits: [
      [
        'if (!epoch.lease.holds()) return undefined; // the primary may renew it',
        'epoch.lease.extend(instant(this.#clock), this.#log.leaseMs);',
      ],
    ],
  },
  'place of another reply': {
    breaks: 'A look-up at a replica takes the place of a key from the reply to another request. (I9)',
    seed: NEARBY_SEEDS + 57,
    file: PORTS,
    edits: [['return found?.name === pointer && found.place ?', 'return found?.place ?']],
  },
  'reply of a replica to another request': {
    breaks: 'A follower takes the reply to another request from a replica. (I9)',
    seed: NEARBY_SEEDS + 28,
    file: VERIFIER,
    edits: [
      ['if (reply?.nonce !== request.nonce) return undefined;', 'if (reply === undefined) return undefined;'],
    ],
  },
  'what a replica lacks': {
    breaks: 'A key that a replica does not have is taken for unknown. (I10)',
    seed: NEARBY_SEEDS,
    file: 'verifier/core/sources.ts',
    edits: [
      [
        'if (!(entry instanceof Entry)) return undefined;',
        "if (!(entry instanceof Entry)) return { kind: 'unknown', verdict: NOT_FOUND };",
      ],
    ],
  },
};

/** Of what all keys are told by. */
const OF_COHERENCE: Readonly<Record<string, Mutant>> = {
  'no fill guard': {
    breaks: 'A record that a look-up read replaces a change that the follower applied meanwhile. (I9)',
    seed: 11,
    file: VERIFIER,
    edits: [
      [
        'if (reply.sequence !== this.position || this.#log.epoch !== epoch)',
        'if (this.#log.epoch !== epoch)',
      ],
    ],
  },
  'no lease': {
    breaks: 'A verifier answers after its lease. (I8)',
    seed: 3,
    file: 'shared/protocol/follower/lease.ts',
    edits: [['latestCheck.monotonicMs < this.#untilMonotonicMs &&', 'this.#untilMonotonicMs > 0 ||']],
  },
  'timer-driven lease': {
    breaks: 'A timer ends the lease, so a paused verifier answers before the timer runs. (I8)',
    seed: 8,
    file: 'shared/protocol/follower/lease.ts',
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
    breaks: 'A lease begins with the reply to SYNC, not with the sending of SYNC. (I8)',
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
    breaks: 'Redis records entries as applied when it sends them. (I7)',
    seed: 2,
    file: SYNC,
    edits: [
      [
        "if acknowledged ~= score then redis.call('ZADD', members, 'XX', string.format('%.1f', acknowledged), member) end",
        `acknowledged = tonumber(reply[8][#reply[8] - 3] or position)
if acknowledged ~= score then redis.call('ZADD', members, 'XX', acknowledged, member) end`,
      ],
    ],
  },
  'no registration': {
    breaks: 'A follower syncs without being a member. (I1)',
    seed: 1,
    file: SYNC,
    edits: [
      ["tonumber(redis.call('ZSCORE', members, member) or -1)", 'tonumber(position)'],
      ["redis.call('ZADD', members, sequence, member)", '', 'shared/protocol/follower/register.lua'],
    ],
  },
  'no-op of another server': {
    breaks:
      'The control plane takes a later no-op as proof that the replicas have a change, though another server holds the no-op. (I1)',
    seed: 1064616,
    file: FENCE,
    edits: [['names: 0, later: noop }', 'names: 0 }']],
  },
  'no second wait': {
    breaks: 'The control plane removes a killed member without a second wait. (I1)',
    seed: 434,
    file: FENCE,
    edits: [['await pause(this.#clock, afterMs, this.#stop.signal);', 'void afterMs;']],
  },
  'no record of a late lease': {
    breaks: 'SYNC does not record that it granted a lease when the log had gone further. (I1)',
    seed: 434,
    file: SYNC,
    edits: [['if acknowledged < tonumber(s) then acknowledged = acknowledged + 0.5 end', '']],
  },
  'late leases believed after a failover': {
    breaks: 'The control plane trusts that record on a server that did not write the change. (I1)',
    seed: 7488,
    file: 'shared/protocol/log/fence-close.lua',
    edits: [["writer ~= '' and writer == serverId()", "writer ~= ''"]],
  },
  'kill without XX': {
    breaks:
      'A fence kills a name that is no longer a member. In the mutant one script is split into two, because within one script no member can leave between the check and the kill. (I7)',
    seed: 63,
    file: PORTS,
    edits: [
      [
        'return this.run(apiId, (state) => state.close(apiId, change, kill));',
        `const { members } = apiKeys(apiId);
         return this.check({ ...change, apiId, keyId: '', replicated: false, names: 100 }).then((logStatus) =>
           logStatus.state === 'LOST'
             ? logStatus
             : this.run(apiId, (state) => {
                 for (const name of logStatus.names) state.command('ZADD', members, String(kill), name);
                 return state.close(apiId, { ...change, server: '' }, kill);
               }),
         );`,
      ],
    ],
  },
  'no prevHash check': {
    breaks: 'A follower applies a message that does not continue its hash chain. (I9)',
    seed: 354,
    file: 'shared/protocol/follower/follower.ts',
    edits: [[' && change.previousHash === this.#hash', '']],
  },
  'no hash chain': {
    breaks: 'The hash of an entry ignores the entries before it. (I5)',
    seed: 1,
    file: CHANGE,
    edits: [["redis.sha1hex(latest.hash .. '|'", "redis.sha1hex('|'"]],
  },
  'creations not compared': {
    breaks: 'SYNC does not compare creation marks. (I11)',
    seed: 407,
    file: HISTORY,
    edits: [['if mark ~= last then', 'if false then']],
  },
  'creations only counted': {
    breaks: 'SYNC compares the numbers of creation marks, not their hashes. (I11)',
    seed: 9018,
    file: HISTORY,
    edits: [["if creation[2][2] ~= seen then return 'DIVERGED' end", '']],
  },
  'no digest of a long state': {
    breaks: 'An entry that is too long for the log has no hash of its content. (I4)',
    seed: 102,
    file: CHANGE,
    edits: [["{'forget', named, redis.sha1hex(payload)}", "{'forget', named}"]],
  },
  'trimmed is intact': {
    breaks: 'A change that Redis trimmed from the log counts as present. (I1)',
    seed: 102,
    file: FENCE,
    edits: [
      ["if (logStatus.state === 'TRIMMED' && !change.replicated) return this.#end(change, 'lost');", ''],
    ],
  },
  'no gate': {
    breaks: 'A write that needs a newer protocol succeeds beside registered older verifiers. (I20)',
    seed: 28,
    file: 'shared/protocol/log/gate.lua',
    edits: [['if answer[3] > 0 then return answer end', '']],
  },
  'older verifiers register': {
    breaks: 'A verifier registers for an API that needs a newer protocol. (I20)',
    seed: 17,
    file: SYNC,
    edits: [
      [
        "if tonumber(needs or 1) > tonumber(string.match(member, '^%d+') or 1) then return {'NOREG', nonce} end",
        '',
      ],
      [
        "if tonumber(needs or 1) > tonumber(string.match(member, '^%d+') or 1) then return {'TOO_OLD', nonce, needs} end",
        '',
        'shared/protocol/follower/register.lua',
      ],
    ],
  },
  'F without X': {
    breaks: 'Fences do not wait for deposed primaries. (I1)',
    seed: 432,
    file: 'shared/protocol/timing.ts',
    edits: [['leaseMs + deposedMs +', 'leaseMs + 0 * deposedMs +']],
  },
  'REGISTER without WAIT': {
    breaks: 'A registration counts before the replicas have it. (I1)',
    seed: 708,
    file: PORTS,
    edits: [
      ["'register', this.#apiId, step, replicas);", "'register', this.#apiId, step, 0);"],
      [
        "if (confirmed < replicas) throw unavailable('not all required replicas confirmed the registration');",
        '',
      ],
    ],
  },
  'complete without WAIT on the write': {
    breaks: 'A change is complete before the replicas have it. (I6)',
    seed: 24,
    file: FENCE,
    edits: [['if (!change.replicated) return false;', '']],
  },
  'no nonce': {
    breaks: 'A follower accepts a reply to another of its requests. (I10)',
    seed: 21,
    file: VERIFIER,
    edits: [
      ['if (reply.nonce !== nonce) return this.#desynchronised(session);', ''],
      ['if (reply.nonce !== request.nonce) return this.#desynchronised(session);', ''],
    ],
  },
  'no key in the reply of a look-up': {
    breaks: 'A verifier accepts the reply to a look-up of another key. (I10)',
    seed: 245,
    file: PORTS,
    edits: [['if (name !== key) {', "if (name === '') {"]],
  },
  'first of a batch instead of the last': {
    breaks: 'A bulk change is complete when its first change is. (I1)',
    seed: 111,
    file: WRITER,
    edits: [['this.#watch(last, written.length)', 'this.#watch(written[0] ?? last, written.length)']],
  },
  'a key of a batch left out': {
    breaks: 'Where the changes of a bulk change are awaited one by one, only the last one is. (I1)',
    seed: 54,
    file: WRITER,
    edits: [['written.map(async', 'written.slice(-1).map(async']],
  },
  'batch over several connections': {
    breaks: 'The control plane sends the changes of a bulk change over several connections. (I1)',
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
    breaks: 'Fences do not wait longer for clocks of different speed. (I1)',
    seed: 38,
    file: 'shared/protocol/timing.ts',
    edits: [['Math.ceil(DRIFT * leaseMs)', '0 * DRIFT']],
  },
  'Lf lowered at once': {
    breaks: 'After `LEASE_MS` was lowered, fences wait for the new lease while old ones are alive. (I1)',
    seed: 91,
    file: 'shared/protocol/writer/sweep.ts',
    edits: [
      ['logger.info({ apiId, fromMs', "await set('fence-last', name);\n      logger.info({ apiId, fromMs"],
    ],
  },
};

/** The same for credits. */
const OF_CREDITS: Readonly<Record<string, Mutant>> = {
  'refund after a crash': {
    breaks: 'Redis grants again what a crashed verifier held. (I12)',
    seed: CREDIT_SEEDS + 3,
    file: EXCHANGE,
    edits: [
      [
        '  local back = granted - (said + kept)',
        `  local fields = redis.call('HGETALL', pool)
  for i = 1, #fields, 2 do
    local name = string.match(fields[i], '^@(.*)$')
    if name and name ~= member and not live(name) then
      local had, used, at = numbers(fields[i + 1])
      b = b + had - used
      redis.call('HSET', pool, fields[i], field(used, used, at, 0))
    end
  end
  local back = granted - (said + kept)`,
      ],
    ],
  },
  'spent credits forgotten': {
    breaks: 'A verifier forgets a pool before it has reported what it spent. (I14)',
    seed: CREDIT_SEEDS + 14,
    file: 'shared/metering/pools.ts',
    edits: [
      [
        'if (pool.isIdle(now) && pool.isOver) this.#pools.delete(id);',
        'if (pool.isIdle(now)) this.#pools.delete(id);',
      ],
    ],
  },
  'a 503 costs credits': {
    breaks: 'A request takes credits although it got 503. (I14)',
    seed: CREDIT_SEEDS + 11,
    file: 'verifier/metering/until-served.ts',
    edits: [
      [
        'if (waiter.over) return;\n        try',
        'if (waiter.over) {\n          if (!isOver) new Promise((late) => late(attempt(waiter))).catch(() => undefined);\n          return;\n        }\n        try',
      ],
    ],
  },
  'slices are kept': {
    breaks: 'A verifier gives nothing back to other verifiers. (I14)',
    seed: CREDIT_SEEDS + 7,
    file: 'shared/metering/pools.ts',
    edits: [['else if (pool.isIdle(now) && !pool.isReported) pool.giveBack();', '']],
  },
};

/** The same for keys whose work holds what it takes. */
const OF_HOLDS: Readonly<Record<string, Mutant>> = {
  'a former member is gone at once': {
    breaks: 'A killed member, which may still have a lease, has no places any more. (I23)',
    seed: HOLD_SEEDS + 134,
    file: EXCHANGE,
    edits: [["elseif not redis.call('ZSCORE', members, holder) then", 'elseif not live(holder) then']],
  },
  'places of a former primary': {
    breaks:
      'A verifier spends places that a former primary granted, of which the present one may know nothing. (I23)',
    seed: CHANGING_LIMIT_SEEDS + 576,
    file: 'shared/metering/pools.ts',
    edits: [
      ['if (pool.hasPlaces) pool.tellPlaces();', 'if (pool.hasPlaces && pool.isHeld) this.#request(pool);'],
    ],
  },
  'places by a late turn': {
    breaks: 'A turn about places counts however late it comes. (I23)',
    seed: HOLD_SEEDS + 924,
    file: EXCHANGE,
    edits: [
      [
        "local _, _, last = numbers(redis.call('HMGET', name, '@' .. member)[1])\n  if turn <= last then return {'OLD', turn} end",
        '',
      ],
    ],
  },
  'the pool of a hold is forgotten': {
    breaks:
      'A verifier forgets a pool of which something is held, and gives what comes back to another. (I14)',
    seed: HOLD_SEEDS + 29,
    file: POOL,
    edits: [['return this.#holds === 0 && this.isReported;', 'return this.isReported;']],
  },
  'a hold ends twice': {
    breaks: 'A release that is repeated gives back again. (I23)',
    seed: HOLD_SEEDS,
    file: 'verifier/metering/holds.ts',
    edits: [['    this.#open.delete(id);\n', '']],
  },
  'what a former name held is kept': {
    breaks: 'What comes back under a former name is not told to Redis. (I14)',
    seed: HOLD_SEEDS + 137,
    file: 'shared/metering/pools.ts',
    edits: [['if (pool.window || !pool.isReleased) return;', 'return;']],
  },
  'a place is taken by looking': {
    breaks: 'A hold is begun where a place was only seen. (I23)',
    seed: HOLD_SEEDS,
    file: 'verifier/metering/allowance.ts',
    edits: [
      ['pool.take(isOnlySeen ? 0 : cost,', 'pool.take(isOnlySeen || (limit && isPlaces(limit)) ? 0 : cost,'],
    ],
  },
};

/** The same for keys whose work holds a part of a rate limit. */
const OF_HELD_LIMITS: Readonly<Record<string, Mutant>> = {
  'a hold of an earlier window': {
    breaks: 'What work of an earlier window did not need can be taken in the present one. (I15)',
    seed: HELD_LIMIT_SEEDS + 10,
    file: 'shared/metering/balance.ts',
    edits: [["if (since < this.#enteredAt) return 'nowhere';", '']],
  },
  'what came back of a limit is kept': {
    breaks: 'What comes back of a rate limit is not told to Redis. (I27)',
    seed: HELD_LIMIT_SEEDS,
    file: POOL,
    edits: [["if (this.#returns === 'surplus' ||", "if (this.isWindow || this.#returns === 'surplus' ||"]],
  },
  'a refusal for the whole window': {
    breaks: 'A refusal is remembered although work may give back what is lacking. (I27)',
    seed: HELD_LIMIT_SEEDS,
    file: EXCHANGE,
    edits: [["status = 'SPOKEN' end\n  local isRefused", 'status = status end\n  local isRefused']],
  },
};

const SHARED_LOG = 'shared/protocol/follower/shared-log.ts';

/** The same for keys that have roles. */
const OF_ROLES: Readonly<Record<string, Mutant>> = {
  'one lease': {
    breaks: "An answer checks the lease of the API's log, and not that of the shared log. (I16)",
    seed: ROLE_SEEDS,
    file: SHARED_LOG,
    edits: [['return join.lease.holds() ? join : undefined;', 'return join;']],
  },
  'a role without a fence': {
    breaks: 'A change of a role is complete without waiting for followers. (I16)',
    seed: ROLE_SEEDS + 1,
    file: FENCE_CHECK,
    edits: [
      [
        'laggards = laggards + count',
        "if not (string.find(head, '{!ws}', 1, true) and entry and entry[2][6] ~= '') then laggards = laggards + count end",
      ],
    ],
  },
  'stale effective permissions': {
    breaks:
      'A verifier keeps the permissions that all roles of a key grant together, after one of the roles changed. (I16)',
    seed: ROLE_SEEDS,
    file: SHARED_LOG,
    edits: [['for (const state of this.states) if (state.isVoid) return false;', '']],
  },
  'reused id of a role': {
    breaks: 'A new role gets the id of a deleted one. (I16)',
    seed: ROLE_SEEDS + 23,
    file: 'test/proof/simulation/roles.ts',
    edits: [['const keyId = this.#newId();', 'const keyId = [...this.#gone].at(-1) ?? this.#newId();']],
  },
};

/** The same for keys whose owners have identities. */
const OF_IDENTITIES: Readonly<Record<string, Mutant>> = {
  'identity ignored': {
    breaks: 'A verifier accepts a key although its identity is disabled. (I16)',
    seed: IDENTITY_SEEDS,
    file: 'shared/rules/rules.ts',
    edits: [['key.identity?.enabled !== false', 'true']],
  },
  'absence of an identity kept': {
    breaks: 'A verifier remembers that an identity does not exist, after its creation. (I16)',
    seed: IDENTITY_SEEDS + 3,
    file: SHARED_LOG,
    edits: [
      [
        'const state = this.#states.peek(id);\n',
        'const state = this.#states.peek(id);\n    if (state && !state.record) return undefined;\n',
      ],
    ],
  },
  'absence of all identities kept': {
    breaks: 'A verifier remembers that there are no identities, after the creation of the first one. (I16)',
    seed: IDENTITY_SEEDS,
    file: SHARED_LOG,
    edits: [['if (this.#noIdentity && id.startsWith(IDENTITY)) {', "if (this.#noIdentity && id === '') {"]],
  },
  'deleted identity kept': {
    breaks:
      'A verifier goes on using a deleted identity, even after the next identity with the same external id was created. (I16)',
    seed: IDENTITY_SEEDS + 3,
    file: SHARED_LOG,
    edits: [['return meteredIn(this.#end(id));', 'return meteredIn(this.#states.peek(id));']],
  },
  'a creation without a fence': {
    breaks: 'The creation of an identity is complete without waiting for followers. (I16)',
    seed: IDENTITY_SEEDS,
    file: FENCE_CHECK,
    edits: [
      [
        'laggards = laggards + count',
        `local record = entry and string.sub(head, 1, -5) .. 'k:' .. entry[2][4]
  local isNew = entry and redis.call('HEXISTS', record, 'c') == 1 and redis.call('HEXISTS', record, 'u') == 0
  if not (isNew and string.find(head, '{!ws}', 1, true)) then laggards = laggards + count end`,
      ],
    ],
  },
  'state from before a restart': {
    breaks: 'A verifier uses a role or identity that it read before its follower started anew. (I2)',
    seed: IDENTITY_SEEDS + 5,
    file: SHARED_LOG,
    edits: [['return state?.epoch.current ? state : undefined;', 'return state;']],
  },
  'verdict about an evicted key': {
    breaks: 'A verifier answers from a key that left its memory during the look-up. (I9)',
    seed: IDENTITY_SEEDS + 84,
    file: 'verifier/core/verifier.ts',
    edits: [['if (isKept && this.#verdicts.isKnown(entry)) return result;', 'return result;']],
  },
  'identity in all APIs': {
    breaks: 'An identity that is limited to some APIs applies in all of them. (I16)',
    seed: IDENTITY_SEEDS,
    file: SHARED_LOG,
    edits: [['if (!this.#apiIds.has(apiId)) return undefined;', '']],
  },
};

/** Of what a follower promises to the companion of its epoch. */
const OF_COMPANIONS: Readonly<Record<string, Mutant>> = {
  'a companion hears of no change': {
    breaks: 'Credits from before they were all taken off can be spent after it. (I24)',
    seed: CHANGING_LIMIT_SEEDS + 28,
    file: VERIFIER,
    edits: [['companion.changed(records);', 'void companion;']],
  },
  'a companion hears of changes after the acknowledgement': {
    breaks: 'A follower acknowledges a change of which its companion has yet to hear. (I24)',
    seed: CHANGING_LIMIT_SEEDS + 28,
    file: VERIFIER,
    edits: [
      ['companion.changed(records);', 'this.#options.clock.after(50, () => companion.changed(records));'],
    ],
  },
  'a companion hears no recall': {
    breaks: 'A verifier keeps what others need. (I27)',
    seed: HELD_LIMIT_SEEDS,
    file: VERIFIER,
    edits: [['(pool) => this.#log.epoch?.companion.recall(pool),', '() => undefined,']],
  },
  'a companion never ends': {
    breaks: 'Redis never hears what was spent under a former name. (I14)',
    seed: CREDIT_SEEDS + 50,
    file: VERIFIER,
    edits: [['const closing = companion.close(this.#stopping);', 'const closing = Promise.resolve();']],
  },
  'a companion ends before its lease': {
    breaks: 'A companion ends while its follower still answers. (I9)',
    seed: HOLD_SEEDS,
    file: VERIFIER,
    edits: [
      [
        'this.#epoch.current = false;\n      this.#epoch.lease.cut();\n      this.close(this.#epoch.companion);\n    }\n    this.#epoch = undefined;',
        `const ending = this.#epoch;
      this.close(ending.companion);
      this.#options.clock.after(100, () => {
        ending.current = false;
        ending.lease.cut();
      });
    }
    this.#epoch = undefined;`,
      ],
    ],
  },
};

/** The same for keys that are rerolled. */
const OF_REROLLS: Readonly<Record<string, Mutant>> = {
  'credits copied to the successor': {
    breaks: 'The successor gets a copy of the credits instead of a share in them. (I12)',
    seed: REROLL_SEEDS + 2,
    file: 'shared/protocol/log/reroll-key.lua',
    edits: [
      [
        "  redis.call('HSET', base .. 'q:' .. pool, 'k', table.concat(sharers, ' '))",
        `  redis.call('HSET', base .. 'q:copy-' .. newId, unpack(redis.call('HGETALL', base .. 'q:' .. pool)))
  redis.call('HSET', new, 'q', 'copy-' .. newId)`,
      ],
    ],
  },
  'a longer life': {
    breaks: 'The old key lives longer than it would have without the rotation. (I18)',
    seed: REROLL_SEEDS + 2,
    file: 'shared/protocol/log/reroll-key.lua',
    edits: [['expires and tonumber(expires) < tonumber(latest) and expires or latest', 'latest']],
  },
  'repeated change of credits': {
    breaks: 'A change of credits that is sent twice is made twice. (I14)',
    seed: REROLL_SEEDS + 2,
    file: CHANGE,
    edits: [['if answer then return replyOf(operation, latest, key, patch, unpack(answer)) end', '']],
  },
  'credits deleted with one key': {
    breaks: 'The first deletion of a key deletes the credits of all keys that share them. (I2)',
    seed: REROLL_SEEDS + 2,
    file: 'shared/metering/sharing.lua',
    edits: [['if #others == 0 then', 'if true then']],
  },
  'credits set for one key': {
    breaks: 'A `set` reaches only one of the keys that share the credits. (I2)',
    seed: REROLL_SEEDS + 2,
    file: CHANGE,
    edits: [['if other ~= key.id then', 'if false then']],
  },
  'silent end of the old key': {
    breaks: 'The log entry about the end of the old key says nothing. (I9)',
    seed: REROLL_SEEDS,
    file: CHANGE,
    edits: [
      [
        '  local sequence, hash = append(',
        `  if patch.x == '1' then payload = '' end
  local sequence, hash = append(`,
      ],
    ],
  },
};

/** The same for credits that are refilled. */
const OF_REFILLS: Readonly<Record<string, Mutant>> = {
  'refill after a set': {
    breaks: 'A refill was due before a `set` and is made after it. (I19)',
    seed: REFILL_SEEDS + 18,
    file: 'shared/metering/change-credits.lua',
    edits: [
      [
        "b, h, t = credits.refillIfDue(name, tonumber(b or 0), tonumber(h or 0), r, t, '', 0)",
        "if asked.op ~= 'set' then b, h, t = credits.refillIfDue(name, tonumber(b or 0), tonumber(h or 0), r, t, '', 0) end",
      ],
    ],
  },
  'due refill dropped': {
    breaks: 'A new setting of the refill drops a refill that was due. (I19)',
    seed: REFILL_SEEDS + 6,
    file: 'shared/metering/change-credits.lua',
    edits: [
      [
        "b, h, t = credits.refillIfDue(name, tonumber(b or 0), tonumber(h or 0), r, t, '', 0)",
        `b, h = tonumber(b or 0), tonumber(h or 0)
  if asked.op ~= 'refill' then b, h, t = credits.refillIfDue(name, b, h, r, t, '', 0) end`,
      ],
    ],
  },
  'a refill for each missed day': {
    breaks: 'After several missed days there are several refills. (I19)',
    seed: REFILL_SEEDS,
    file: CREDITS,
    edits: [
      [
        'if now < tonumber(t) then return b, h, tonumber(t) end',
        `if now < tonumber(t) then return b, h, tonumber(t) end
    following = tonumber(t) + DAY`,
      ],
    ],
  },
  'clock set back is believed': {
    breaks: 'When the clock of Redis goes back, credits are refilled once more. (I19)',
    seed: REFILL_SEEDS,
    file: CREDITS,
    edits: [['if now < tonumber(t) then', 'if now < tonumber(t) and now > tonumber(t) - 2 * DAY then']],
  },
};

/** The same for rate limits. */
const OF_LIMITS: Readonly<Record<string, Mutant>> = {
  'a grant outlives its window': {
    breaks: 'A verifier uses a grant of one window in the next. (I15)',
    seed: LIMIT_SEEDS + 3,
    file: 'shared/metering/grant-window.ts',
    edits: [['withinMs(Math.min(leftMs, GRANTED_MS))', 'GRANTED_MS']],
  },
  'window from reply time': {
    breaks:
      'A verifier measures the end of the window from the reply, not from the sending of the request. (I15)',
    seed: LIMIT_SEEDS + 26,
    file: 'shared/metering/pool.ts',
    edits: [
      [
        'this.#grant.enter(reply.window, turn.window, turn.sentAt)',
        'this.#grant.enter(reply.window, turn.window, instant(this.#clock))',
      ],
    ],
  },
  'reports about another window count': {
    breaks: 'Redis counts a report about an earlier window in the present one. (I2)',
    seed: LIMIT_SEEDS + 2134,
    file: EXCHANGE,
    edits: [['elseif number ~= present then said, holding, kept = 0, 0, 0 end', 'end']],
  },
  'forgotten uses are unspent': {
    breaks: 'A verifier forgot what it spent of a limit. Redis takes the amount for unspent. (I15)',
    seed: LIMIT_SEEDS + 362,
    file: EXCHANGE,
    edits: [
      [
        'if not said then said, holding, kept = granted, 0, 0',
        'if not said then said, holding, kept = spent, 0, 0',
      ],
    ],
  },
  'windows do not slide': {
    breaks: 'The uses in the window before do not count. (I15)',
    seed: LIMIT_SEEDS + 3,
    file: 'shared/metering/windows.lua',
    edits: [['p * math.min(1, left / slides)', '0']],
  },
  "windows by a machine's clock": {
    breaks: 'The clock of the calling machine decides the window, not the clock of Redis. (I15)',
    seed: LIMIT_SEEDS,
    file: PORTS,
    edits: [
      [
        '(state) => state.exchange(apiId, this.#nameOf(member), turns);',
        `(state) => {
      const { redisAheadMs } = network;
      network.redisAheadMs += this.#lanes.machine.wallMs() - network.redisMs;
      const replies = state.exchange(apiId, this.#nameOf(member), turns);
      network.redisAheadMs = redisAheadMs;
      return replies;
    };`,
      ],
    ],
  },
  'requests without a use': {
    breaks: 'An accepted request takes nothing from its rate limit. (I15)',
    seed: LIMIT_SEEDS,
    file: 'verifier/metering/allowance.ts',
    edits: [
      [
        'for (const { pool, cost, limit, isOnlySeen, isHeld } of needs)',
        'for (const { pool, cost, limit, isOnlySeen, isHeld } of needs.filter((need) => !need.limit || isPlaces(need.limit)))',
      ],
    ],
  },
};

const BALANCE = 'shared/metering/balance.ts';

/** The same for limits that change under load, and for two amounts of one limit. */
const OF_CHANGES: Readonly<Record<string, Mutant>> = {
  'a lower limit spends what a higher one was granted': {
    breaks: 'A question with a lower limit takes what was granted under a higher one. (I15)',
    seed: SHARED_LIMIT_SEEDS,
    file: POOL,
    edits: [['balance.under <= limit &&', '']],
  },
  'places from before a change are free here': {
    breaks: 'A place that a change took is taken again when its work ends. (I23)',
    seed: CHANGING_LIMIT_SEEDS + 4,
    file: BALANCE,
    edits: [["if (since >= this.#changedAt) return 'here';", "if (since >= 0) return 'here';"]],
  },
  'places are left behind': {
    breaks: 'A verifier that registers anew does not bring the places of its work. (I23)',
    seed: HOLD_SEEDS + 9,
    file: VERIFIER,
    edits: [['const held = this.#log.held;', 'const held: readonly Held[] = [];']],
  },
  'nothing is owed': {
    breaks: 'What a decrement did not find comes back as new credits. (I24)',
    seed: CHANGING_LIMIT_SEEDS + 10,
    file: CREDITS,
    edits: [["if owed > 0 then redis.call('HSET', pool, 'o', text(owed)) end", '']],
  },
  'what comes back pays nothing': {
    breaks: 'What comes back does not pay what a decrement did not find. (I24)',
    seed: CHANGING_LIMIT_SEEDS + 10,
    file: CREDITS,
    edits: [['local paid = math.max(0, math.min(owed, back, old - left))', 'local paid = 0']],
  },
  'a refill forgets what is held': {
    breaks: 'A refill does not count what work holds, and it comes back on top. (I14)',
    seed: CHANGING_LIMIT_SEEDS + 52,
    file: CREDITS,
    edits: [['local out = kept + others + tonumber(held or 0) -', 'local out = kept + others -']],
  },
  'a refill counts on what is spoken for': {
    breaks:
      'A refill brings, on top of its amount, what is owed of credits that are spoken for and may be spent. (I12)',
    seed: CHANGING_LIMIT_SEEDS + 1,
    file: CREDITS,
    edits: [['(live(name) and granted - spent - spoken or 0) +', '(live(name) and granted - spent or 0) +']],
  },
  'a reply forgets what went back': {
    breaks: 'What went back to Redis during a turn can be spent here all the same. (I23)',
    seed: CHANGING_LIMIT_SEEDS + 184,
    file: BALANCE,
    edits: [['this.#granted = granted - this.#gone;', 'this.#granted = granted;']],
  },
  'a release spends without a lease': {
    breaks: 'A verifier that slept charges more from credits that were all taken off meanwhile. (I24)',
    seed: CHANGING_LIMIT_SEEDS + 1647,
    file: 'verifier/metering/holds.ts',
    edits: [["    if (!pool.isLive) throw unavailable('not in sync with Redis');\n", '']],
  },
  'each look-up waits anew': {
    breaks: 'Questions about more keys than memory has room for are never answered. (I2)',
    seed: SHARED_LIMIT_SEEDS + 616,
    file: 'verifier/core/verifier.ts',
    edits: [['this.#lookUp(question, sinceMs);\n', 'this.#lookUp(question, this.#clock.monotonicMs());\n']],
  },
  'each limit voids the other': {
    breaks: 'Questions with two amounts of one limit wake each other without end. (I25)',
    seed: SHARED_LIMIT_SEEDS + 4,
    file: 'shared/metering/pools.ts',
    edits: [
      [
        '      present.window = window;\n',
        '      if (present.window?.limit !== window?.limit) present.applyChange();\n      present.window = window;\n',
      ],
    ],
  },
};

/** The same for limits of plans and overrides that go up and down. */
const OF_PLANS: Readonly<Record<string, Mutant>> = {
  'a role changes no limit': {
    breaks: 'What was granted before the limit of a role went up and down can be spent after that. (I15)',
    seed: CHANGING_PLAN_SEEDS + 27,
    file: 'shared/protocol/follower/shared-log.ts',
    edits: [['if (obeyedAtMs > latestMs) latestMs = obeyedAtMs;', '']],
  },
  'an override changes no limit': {
    breaks: 'What was granted before an override went up and down can be spent after that. (I15)',
    seed: CHANGING_PLAN_SEEDS + 86,
    file: 'verifier/metering/rate-limits.ts',
    edits: [['isExact: false }, obeyedAtMs);', 'isExact: false });']],
  },
  'a key with a plan of its own changes nothing': {
    breaks: 'What a key was granted before it moved to another role and back can be spent after that. (I15)',
    seed: CHANGING_PLAN_SEEDS + 298,
    file: 'verifier/metering/needs.ts',
    edits: [['Math.max(obeyedAtMs, ofKeyMs)', 'obeyedAtMs']],
  },
  'all is granted under the lowest limit': {
    breaks: 'A question takes what is beyond its limit. (I15)',
    seed: CHANGING_PLAN_SEEDS + 4,
    file: EXCHANGE,
    edits: [['left - 1, 0, limit - b}', 'left - 1, 0, 0}']],
  },
};

/** The same for root keys that verifiers ask for. */
const OF_ROOT_KEYS: Readonly<Record<string, Mutant>> = {
  'root keys after the lease': {
    breaks: 'A verifier accepts or refuses root keys without a lease of the shared log. (I22)',
    seed: ROOT_KEY_SEEDS + 5,
    file: SHARED_LOG,
    edits: [['return state?.epoch.lease.holds() ? state.scopes : undefined;', 'return state?.scopes;']],
  },
  'root keys of an earlier publication': {
    breaks: 'A verifier goes on using what it learned of root keys first. (I22)',
    seed: ROOT_KEY_SEEDS + 1,
    file: SHARED_LOG,
    edits: [
      [
        'this.#states.set(id, new State(epoch, new Entry(epoch, id, state)));',
        "this.#states.set(id, id === 'rootkeys' ? before : new State(epoch, new Entry(epoch, id, state)));",
      ],
    ],
  },
  'credits of an identity for nothing': {
    breaks: 'A verifier does not take from the credits that the keys of an identity share. (I17)',
    seed: SHARED_CREDIT_SEEDS + 1,
    file: 'verifier/metering/needs.ts',
    edits: [
      [
        "return identity.pool !== '' ? poolsOf(companion).get(identity.pool) : undefined;",
        'return undefined;',
      ],
    ],
  },
  'a publication without a fence': {
    breaks: 'A change of a root key is complete without waiting for followers. (I22)',
    seed: ROOT_KEY_SEEDS + 1,
    file: FENCE_CHECK,
    edits: [
      [
        'laggards = laggards + count',
        "if not (entry and entry[2][4] == 'rootkeys') then laggards = laggards + count end",
      ],
    ],
  },
};

/** Of deletions that are repeated. */
const OF_DELETIONS: Readonly<Record<string, Mutant>> = {
  'a repeated deletion without an entry': {
    breaks: 'A repeated deletion answers with the head of the log, which may be of before the deletion. (I5)',
    seed: DELETION_SEEDS,
    file: CHANGE,
    edits: [
      [
        "operation = redis.call('HEXISTS', record, 'p') == 1 and 'delete' or 'noop'",
        `operation = 'delete'
    if redis.call('HEXISTS', record, 'p') == 0 then
      return {'OK', string.format('%.0f', latest.sequence), latest.hash, latest.lease, '', '', '', server}
    end`,
      ],
    ],
  },
  'a repeated deletion deletes nothing': {
    breaks: 'A repeated deletion writes a no-op, though the key is there. (I1)',
    seed: DELETION_SEEDS,
    file: CHANGE,
    edits: [
      ["operation = redis.call('HEXISTS', record, 'p') == 1 and 'delete' or 'noop'", "operation = 'noop'"],
    ],
  },
};

const LEASE = 'shared/protocol/follower/lease.ts';
const TOKENS = 'verifier/tokens/tokens.ts';
const SWEEP = 'shared/protocol/writer/sweep.ts';

/** Of tokens. */
const OF_TOKENS: Readonly<Record<string, Mutant>> = {
  'tokens are not waited for': {
    breaks: 'A change is complete while a token from before it is valid. (I26)',
    seed: TOKEN_SEEDS,
    file: WRITER,
    edits: [['return completed(outcome, [change], change.watched);', 'return completed(outcome, []);']],
  },
  'a batch does not wait for tokens': {
    breaks: 'Changes of many keys are complete while a token from before them is valid. (I26)',
    seed: TOKEN_SEEDS + 5,
    file: WRITER,
    edits: [['return completed(outcome, written, last);', 'return completed(outcome, []);']],
  },
  'status knows no tokens': {
    breaks: 'Another control plane says complete while a token from before the change is valid. (I26)',
    seed: TOKEN_SEEDS,
    file: WRITER,
    edits: [['isApplied && restMs <= 0', 'isApplied']],
  },
  'a token outlives its lease': {
    breaks: 'A token ends after the lease under which it was issued. (I26)',
    seed: TOKEN_SEEDS,
    file: LEASE,
    edits: [['restMs - 2 * SKEW_MS', 'restMs + SKEW_MS']],
  },
  'no margin for tokens': {
    breaks: 'A token is valid by a clock that is a second late. (I26)',
    seed: TOKEN_SEEDS + 4,
    file: LEASE,
    edits: [['restMs - 2 * SKEW_MS', 'restMs']],
  },
  'tokens by a wrong clock': {
    breaks: 'A verifier issues tokens though its clock is wrong. (I26)',
    seed: TOKEN_SEEDS + 1,
    file: LEASE,
    edits: [['this.isLending && isRight', 'this.isLending && isRight !== undefined']],
  },
  'a kept token says what was': {
    breaks: 'A verifier hands out a token from before a change of the key. (I29)',
    seed: TOKEN_SEEDS + 10,
    file: TOKENS,
    edits: [['kept.details !== entry.details || ', '']],
  },
  'a kept token says what a role was': {
    breaks: 'A verifier hands out a token from before a change of a role. (I29)',
    seed: TOKEN_SEEDS,
    file: TOKENS,
    edits: [[' || kept.effectivePermissions !== effectivePermissions', '']],
  },
  'a kept token outlives its lease': {
    breaks: 'A verifier hands out a token that ends after the lease. (I29)',
    seed: TOKEN_SEEDS + 7,
    file: TOKENS,
    edits: [['kept === undefined || kept.endS > endS', 'kept === undefined']],
  },
  'the flag of tokens read before the write': {
    breaks: 'Tokens are switched on between the look at the flag and the write. (I26)',
    seed: TOKEN_SEEDS,
    file: PORTS,
    edits: [
      [
        'const nowMs = this.#lanes.machine.wallMs();\n    const poolId',
        "const { lendingName, outlivesFenceMs } = await this.run(asked.apiId, (state) => state.head(asked.apiId), 'read');\n    await new Promise((over) => this.#lanes.machine.after(500, () => over(undefined)));\n    const nowMs = this.#lanes.machine.wallMs();\n    const poolId",
      ],
      [
        'if (replicated) this.#durable(asked.apiId, reply.hash);\n    return { ...reply, replicated };',
        "if (replicated) this.#durable(asked.apiId, reply.hash);\n    return { ...reply, replicated, outlivesMs: lendingName === '' ? undefined : outlivesFenceMs } as LogEntry;",
      ],
    ],
  },
  'tokens from a log that is not applied': {
    breaks: 'A verifier issues tokens by a reply with changes that it has not applied. (I26)',
    seed: LATE_TOKEN_SEEDS + 266,
    file: VERIFIER,
    edits: [
      [
        'if (isProven && prefix.position >= reply.sequence) {\n      epoch.lease.extend',
        'if (isProven) epoch.lease.allowLending(sentAt, reply.leaseMs, reply.lendsAtMs ?? 0, reply.audiences);\n    if (isProven && prefix.position >= reply.sequence) {\n      epoch.lease.extend',
      ],
    ],
  },
  'tokens switched off without a wait': {
    breaks: 'Changes do not wait any more for tokens from before these were switched off. (I26)',
    seed: TOKEN_SEEDS + 9,
    file: SWEEP,
    edits: [
      [
        'clock.monotonicMs() - sinceMs >= fenceMs(head.fencedMs, deposedMs) + head.outlivesFenceMs',
        'clock.monotonicMs() >= sinceMs',
      ],
    ],
  },
  'the leeway is not waited for': {
    breaks: 'A change is complete while others accept a token from before it after its end. (I26)',
    seed: TOKEN_SEEDS,
    file: WRITER,
    edits: [['closesAtMs + (entry.outlivesMs ?? 0)', 'closesAtMs']],
  },
  'status knows no leeway': {
    breaks: 'Another control plane says complete while others accept a token from before the change. (I26)',
    seed: TOKEN_SEEDS + 17,
    file: 'shared/protocol/log/fence-check.lua',
    edits: [['known[2][8] + (known[2][10] or 62000)', 'known[2][8]']],
  },
  'the leeway of tokens that are off is not waited for': {
    breaks:
      'Changes do not wait any more for tokens that others still accept after these were switched off. (I26)',
    seed: TOKEN_SEEDS + 160,
    file: SWEEP,
    edits: [
      [
        'sinceMs >= fenceMs(head.fencedMs, deposedMs) + head.outlivesFenceMs',
        'sinceMs >= fenceMs(head.fencedMs, deposedMs)',
      ],
    ],
  },
  'the shared log has no leeway': {
    breaks: 'Changes of the shared log do not wait for the largest leeway of the APIs. (I26)',
    seed: TOKEN_SEEDS + 28,
    file: SWEEP,
    edits: [['Math.max(this.#pass.longestMs ?? 0, head.outlivesFenceMs)', '0']],
  },
  'a leeway lowered at once': {
    breaks: 'Changes wait for a lower leeway while others accept earlier tokens for the higher one. (I26)',
    seed: TOKEN_SEEDS + 100,
    file: SWEEP,
    edits: [['sinceMs >= fenceMs(head.fencedMs, deposedMs) + outlivesFenceMs', 'sinceMs >= 0']],
  },
  'the shared log has no tokens': {
    breaks: 'Changes of the shared log do not wait for tokens of an API. (I26)',
    seed: TOKEN_SEEDS,
    file: SWEEP,
    edits: [
      ["else if (head.lendingName !== '')", "else if (head.lendingName === '-')"],
      [
        'clock.monotonicMs() - sinceMs >= fenceMs(head.fencedMs, deposedMs) + head.outlivesFenceMs',
        'clock.monotonicMs() >= sinceMs',
      ],
    ],
  },
};

const ALLOWANCE = 'verifier/metering/allowance.ts';
const METERING = 'verifier/metering/metering.ts';

/** The same for holds that take less where there is less. */
const OF_AT_LEAST: Readonly<Record<string, Mutant>> = {
  'less than a hold takes at least': {
    breaks: 'A hold takes what is there, however little. (I28)',
    seed: AT_LEAST_SEEDS,
    file: ALLOWANCE,
    edits: [['cost: Math.max(least, ', 'cost: Math.max(1, ']],
  },
  'a hold forgets what it chose': {
    breaks: 'A question that waited asks for the whole cost again, which is not there. (I27)',
    seed: AT_LEAST_SEEDS,
    file: METERING,
    edits: [['this.#choices.get(need.pool) ?? need;', 'need;']],
  },
  'a hold says what it asked for': {
    breaks: 'A hold takes what is there, and tells and settles the whole cost. (I15)',
    seed: AT_LEAST_SEEDS,
    file: METERING,
    edits: [
      [
        'this.holds.begin(entry, question, needs, hold)',
        'this.holds.begin(entry, question, needsOf(entry, question, effectivePermissions, (need) => need) as Need[], hold)',
      ],
    ],
  },
  'a hold takes the least': {
    breaks: 'A hold takes the least, although more is there. (I27)',
    seed: AT_LEAST_SEEDS,
    file: ALLOWANCE,
    edits: [['pool.remaining(limit?.limit), least + part', 'least']],
  },
};

/** By what is left out of the code that ships. */
export const MUTANTS: Readonly<Record<string, Mutant>> = {
  ...OF_COHERENCE,
  ...OF_NEARBY,
  ...OF_CREDITS,
  ...OF_COMPANIONS,
  ...OF_LIMITS,
  ...OF_REROLLS,
  ...OF_ROLES,
  ...OF_IDENTITIES,
  ...OF_ROOT_KEYS,
  ...OF_REFILLS,
  ...OF_HOLDS,
  ...OF_CHANGES,
  ...OF_PLANS,
  ...OF_DELETIONS,
  ...OF_TOKENS,
  ...OF_HELD_LIMITS,
  ...OF_AT_LEAST,
};

/** Makes every later import, and every script that it reads, be the mutant. Throws there when the code has changed under it. */
export function install(name: string): void {
  const mutant = MUTANTS[name];
  if (!mutant) throw new Error(`no such mutant; there are: ${Object.keys(MUTANTS).join(', ')}`);
  registerHooks({
    load(url, context, next) {
      const loaded = next(url, context);
      return { ...loaded, ...(loaded.source ? { source: planted(mutant, url, String(loaded.source)) } : {}) };
    },
  });
  const { readFileSync } = fs;
  fs.readFileSync = ((file: URL, options: 'utf8') => {
    const found = readFileSync(file, options);
    return typeof found === 'string' ? planted(mutant, String(file), found) : found;
  }) as typeof readFileSync;
  syncBuiltinESMExports();
}

/** The text of a file in a mutant. */
export function planted({ file, edits }: Mutant, url: string, source: string): string {
  let text = source;
  for (const [before, after, of = file] of edits) {
    if (url !== new URL(`../../../${of}`, import.meta.url).href) continue;
    const parts = text.split(before);
    if (parts.length !== 2) throw new Error(`${of} has not once: ${before}`);
    text = parts.join(after);
  }
  return text;
}
