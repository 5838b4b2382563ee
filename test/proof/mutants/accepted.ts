/** A mutant that no test can notice, because the program does the same with it, or nothing that anybody is promised. */
export interface Accepted {
  readonly file: string;
  /** The line without the mutant, and with it; white space at the ends apart. */
  readonly before: string;
  readonly after: string;
  readonly reason: string;
}

/** Survivors that were looked at, each with the reason why it may survive. */
export const ACCEPTED: readonly Accepted[] = [
  {
    file: 'shared/protocol/log/durable-writer.ts',
    before: 'const WRITE_LANES = 8;',
    after: 'const WRITE_LANES = 9;',
    reason: 'A number of connections that was chosen by measurement: one more changes no answer.',
  },
  {
    file: 'control-plane/core/callers/root-permissions.ts',
    before: "return this.touches('*');",
    after: "return this.touches('');",
    reason: 'No permission names an API without a name, so that only those on all APIs count either way.',
  },
  {
    file: 'control-plane/core/keys/key-import.ts',
    before:
      "const completions = records.filter(({ keyId }, i) => statuses[i] === 'OK' && !ownIds.has(keyId));",
    after:
      "const completions = records.filter(({ keyId }, i) => statuses[i] === 'OK' || !ownIds.has(keyId));",
    reason: 'Sets pointers that are there already to what they hold, which changes nothing.',
  },
  {
    file: 'control-plane/core/serve/count-calls.lua',
    before: 'if left < 0 then',
    after: 'if left < 1 then',
    reason: 'PTTL is 0 only within the last millisecond of a window, which a test cannot wait for.',
  },
  {
    file: 'control-plane/subjects/audit/audit.ts',
    before: 'const batch = await read(next, EXAMINED_AT_ONCE + 1);',
    after: 'const batch = await read(next, EXAMINED_AT_ONCE + 2);',
    reason: 'Asks for one event more than tells whether there are more; only EXAMINED_AT_ONCE are looked at.',
  },
  {
    file: 'shared/metering/change-credits.lua',
    before: "b, h, t = credits.refillIfDue(name, tonumber(b or 0), tonumber(h or 0), r, t, '', 0)",
    after: "b, h, t = credits.refillIfDue(name, tonumber(b or 1), tonumber(h or 0), r, t, '', 0)",
    reason: 'Only `set` and `none` are done to a key without a pool, and both begin anew.',
  },
  {
    file: 'shared/metering/change-credits.lua',
    before: "if pool then redis.call('DEL', name) end",
    after: "if true then redis.call('DEL', name) end",
    reason: 'Without a pool it is the name of a pool without a name, of which there is none.',
  },
  {
    file: 'shared/metering/credits.lua',
    before: 'local shifted = day + 719468',
    after: 'local shifted = day - 719468',
    reason: 'The search for the next refill begins thousands of years earlier and goes on to the same day.',
  },
  {
    file: 'shared/metering/pool.ts',
    before: 'if (this.#turn || this.#demand.size > 0) return false;',
    after: 'if (this.#turn || this.#demand.size > 1) return false;',
    reason: 'Whoever asks has seen before that nobody waits, or has sent all away who did.',
  },
  {
    file: 'shared/metering/grant-window.ts',
    before: '#resetMs = 0;',
    after: '#resetMs = 1;',
    reason: 'Before the first reply, which sets it; until then no answer tells of the limit.',
  },
  ...['#latestCost', '#latestAtMs'].map((field) => ({
    file: 'shared/metering/spending-rate.ts',
    before: `${field} = 0;`,
    after: `${field} = 1;`,
    reason:
      'Before the first spending; a part of the rate that fades within seconds of the start of the process.',
  })),
  {
    file: 'shared/rules/permission-query.ts',
    before: "while (this.#takes('OR')) parts.push(this.#conjunction(depth));",
    after: "while (this.#takes('OR')) parts.unshift(this.#conjunction(depth));",
    reason: 'Any of them will do, in whatever order they are asked.',
  },
  {
    file: 'shared/protocol/follower/sync.lua',
    before: 'size = size + #f[6] + 128',
    after: 'size = size + #f[6] + 129',
    reason: 'An estimate of what an entry takes beside its payload; a page of entries may end one earlier.',
  },
  {
    file: 'verifier/proxy/proxy.ts',
    before: 'if (response.headersSent || response.destroyed) return;',
    after: 'if (false) return;',
    reason:
      'Upstream rejects only where no head was sent, and on a connection that is gone a write does nothing.',
  },
];
