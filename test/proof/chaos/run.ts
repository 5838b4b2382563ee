// `npm run chaos`: real processes under real faults, every answer checked.

import { rmSync } from 'node:fs';
import { Agent } from 'undici';
import { numberArgument, scriptArguments, wrongArguments } from '../../../deploy/dev/arguments.ts';
import { recordProof } from '../../harness/proof-log.ts';
import { scratch } from '../../harness/scratch.ts';
import type { Account } from './account.ts';
import { build, DEPLOYMENTS, type Deployment, VERIFIERS } from './build.ts';
import { Client } from './client.ts';
import { Failovers } from './failovers.ts';
import { type Fault, faultsOf } from './faults.ts';
import { History } from './history.ts';

const READERS = 12;
const SPENDERS = 6;
const REST_MS = { min: 100, max: 700 } as const;
const HOLD_MS = { min: 100, max: 3500 } as const;

/** Report of a run. Times in milliseconds. */
export interface Report {
  readonly deployment: Deployment;
  readonly seed: number;
  readonly faults: Readonly<Record<string, number>>;
  readonly counts: History['counts'];
  readonly stale: readonly string[];
  /** Accounts of keys that accepted more than was granted. */
  readonly overspent: readonly string[];
  readonly credits: Readonly<Record<'granted' | 'accepted' | 'exceeded' | 'rerolls', number>>;
  /** Windows, and times as long as one, in which keys were accepted more often than their limit allows. */
  readonly exceeded: readonly string[];
  readonly limits: Readonly<Record<'accepted' | 'limited' | 'failovers', number>>;
  /** Reason why the run ended early; undefined = it did not. */
  readonly brokeOff: string | undefined;
  /** From the end of a fault until every verifier decided again and a change was complete by acks, by fault. */
  readonly recoveryMs: Readonly<Record<string, { median: number; max: number }>>;
}

/**
 * Runs one deployment under faults for `ms`, of every kind at least once that `takes` allows by its number. Rejects only
 * where it cannot begin, never for a stale answer.
 */
export async function chaos(
  deployment: Deployment,
  ms: number,
  seed: number,
  takes: (kind: number) => boolean = () => true,
): Promise<Report> {
  const directory = scratch('chaos');
  const random = generator(seed);
  const history = new History();
  const stop: (() => Promise<unknown>)[] = [];
  const agent = new Agent({ connections: 64, headersTimeout: 15_000, bodyTimeout: 15_000 });
  try {
    const world = await build(deployment, directory, stop);
    const client = new Client(world, agent, history, random);
    await client.createKeys();
    await client.createAccounts();
    await client.createMeters();
    await client.createGuests();
    const running = { now: true };
    const work = [
      ...client.keys.map((key) => client.write(key, running)),
      ...client.owners.map((owner) => client.stopAndGoOn(owner, running)),
      ...client.roles.map((role) => client.changeRole(role, running)),
      ...Array.from({ length: READERS }, () => client.read(running)),
      ...client.accounts.map((account) => client.changeCredits(account, running)),
      ...Array.from({ length: SPENDERS }, () => client.spend(running)),
      ...client.meters.map((meter) => client.use(meter, running)),
      client.changeGuests(running),
    ];
    const failovers = new Failovers(world);
    await failovers.begin();
    const faults = faultsOf(world).filter((_, kind) => takes(kind));
    const injected: Record<string, number> = {};
    const recoveries: Record<string, number[]> = {};
    const endsAtMs = performance.now() + ms;
    let brokeOff: string | undefined;
    try {
      // A verifier that was never asked follows no API: nobody would wait for it, whatever befell it.
      await client.recovery();
      for (let i = 0; performance.now() < endsAtMs || i < faults.length; i++) {
        // Every kind once, then at random.
        const fault = faults[i < faults.length ? i : Math.floor(random() * faults.length)] as Fault;
        const undo = await fault.inject(random);
        await rest(HOLD_MS.min + random() * (HOLD_MS.max - HOLD_MS.min));
        await undo();
        injected[fault.name] = (injected[fault.name] ?? 0) + 1;
        recoveries[fault.name] ??= [];
        recoveries[fault.name]?.push(await client.recovery());
        await rest(REST_MS.min + random() * (REST_MS.max - REST_MS.min));
      }
    } catch (error) {
      // What was found until then is told all the same.
      brokeOff = error instanceof Error ? (error.stack ?? error.message) : String(error);
    }
    running.now = false;
    await Promise.all(work);
    await failovers.end();
    const recoveryMs = Object.fromEntries(
      Object.entries(recoveries).map(([name, all]) => {
        const sorted = all.toSorted((a, b) => a - b);
        return [
          name,
          { median: Math.round(sorted[sorted.length >> 1] ?? 0), max: Math.round(sorted.at(-1) ?? 0) },
        ];
      }),
    );
    const { counts, stale } = history;
    const overspent = client.accounts.flatMap((account) => account.overspent);
    const sum = (of: (account: Account) => number) =>
      client.accounts.reduce((all, account) => all + of(account), 0);
    const credits = {
      granted: sum(({ total }) => total.granted),
      accepted: sum(({ total }) => total.accepted),
      exceeded: sum(({ exceeded }) => exceeded),
      rerolls: sum(({ rerolls }) => rerolls),
    };
    const exceeded = client.meters.flatMap((meter) => meter.exceeded(failovers.seen));
    const limits = {
      accepted: client.meters.reduce((all, { total }) => all + total, 0),
      limited: client.meters.reduce((all, meter) => all + meter.limited, 0),
      failovers: failovers.seen.reduce((all, { count }) => all + count, 0),
    };
    const kept = { counts, stale, overspent, credits, exceeded, limits };
    return { deployment, seed, faults: injected, ...kept, brokeOff, recoveryMs };
  } finally {
    await agent.destroy();
    for (const end of stop.reverse()) await end();
    rmSync(directory, { recursive: true, force: true });
  }
}

const rest = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Mulberry32: small, and the same for the same seed. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const USAGE = `npm run chaos -- [--minutes N] [--deployment NAME]… [--seed S]

Runs one control plane and ${VERIFIERS} verifiers on real Redis servers, kills, pauses and cuts them off at random, and
compares every answer with what was written of its key, its role and its owner's identity, what keys with credits were
accepted for with what was granted, and how often keys with rate limits were accepted in each window with their limits.
Prints a report; status 1 where an answer was stale, more was accepted, or the run broke off.
Each run is noted in test/proof/proofs.ndjson; \`npm run proof-log\` adds all of them up.

  --minutes N         for each deployment, at least every fault once (default 1)
  --deployment NAME   ${DEPLOYMENTS.join(', ')}; may be repeated (default: each, one after the other)
  --seed S            chooses the faults (default: random); the timing of processes stays their own`;

if (import.meta.main) {
  const { values } = scriptArguments(USAGE, {
    options: {
      minutes: { type: 'string', default: '1' },
      deployment: { type: 'string', multiple: true, default: [...DEPLOYMENTS] },
      seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 31)) },
    },
  });
  const minutes = numberArgument('minutes', values.minutes, 0, USAGE);
  const seed = numberArgument('seed', values.seed, 0, USAGE);
  const chosen = DEPLOYMENTS.filter((name) => values.deployment.includes(name));
  const unknown = values.deployment.find((name) => !chosen.some((each) => each === name));
  if (unknown !== undefined) wrongArguments(`--deployment: there is no ${unknown}`, USAGE);
  for (const deployment of chosen) {
    const startedMs = performance.now();
    const report = await chaos(deployment, minutes * 60_000, seed);
    console.log(JSON.stringify(report, undefined, 2));
    const { stale, overspent, exceeded, brokeOff } = report;
    const violations = stale.length + overspent.length + exceeded.length + (brokeOff === undefined ? 0 : 1);
    if (violations > 0) process.exitCode = 1;
    recordProof({
      proof: `chaos ${deployment}`,
      seed,
      seeds: 1,
      minutes: Math.round((performance.now() - startedMs) / 600) / 100,
      answers: report.counts.answers,
      faults: Object.values(report.faults).reduce((all, count) => all + count, 0),
      violations,
    });
  }
}
