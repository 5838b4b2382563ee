#!/usr/bin/env node
// How long a revoked key is accepted, and whether the call that revokes says so: measured from outside.
import { readFileSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { drawing } from './drawing.ts';
import { type History, outcomes, summary } from './outcome.ts';
import { readTarget } from './target.ts';
import { runTrial } from './trial.ts';

const USAGE = `keyfence-revocation --target FILE [options]

Makes keys, asks about each from several clients, revokes it, and tells how long it was accepted. In a clone of Keyfence:
npm run revocation -- --target FILE

  --target FILE      how to make a key, ask about it and revoke it: see README.md
  --revocations N    20 by default
  --clients N        of each instance, 4 by default
  --per-second N     questions of all clients, 200 by default
  --quiet MS         a revocation is over after this time without an acceptance, 2000 by default
  --longest MS       or after this time at all, 60000 by default
  --history FILE     writes all questions and answers as lines of JSON
  --plot FILE        writes a drawing, SVG
  --json             prints the figures of each revocation as JSON

Ends with status 0, with 3 if a key was accepted after the call claimed that it is refused, else with 1 or 2.`;

const fail = (reason: string): never => {
  console.error(`${reason}\n\n${USAGE}`);
  process.exit(2);
};

function readOptions() {
  const text = { type: 'string' } as const;
  try {
    return parseArgs({
      options: {
        ...{ target: text, revocations: text, clients: text, 'per-second': text, quiet: text, longest: text },
        ...{ history: text, plot: text, json: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } },
      },
    }).values;
  } catch (error) {
    return fail((error as Error).message);
  }
}

const options = readOptions();
if (options.help) {
  console.log(USAGE);
  process.exit(0);
}
const count = (
  name: 'revocations' | 'clients' | 'per-second' | 'quiet' | 'longest',
  otherwise: number,
  most: number,
) => {
  const given = Number(options[name] ?? otherwise);
  return Number.isInteger(given) && given >= 1 && given <= most
    ? given
    : fail(`--${name}: a number from 1 to ${most}`);
};
const revocations = count('revocations', 20, 10_000);
const trial = {
  ...{ clients: count('clients', 4, 1000), perSecond: count('per-second', 200, 20_000), beforeMs: 300 },
  ...{ quietMs: count('quiet', 2000, 600_000), longestMs: count('longest', 60_000, 3_600_000) },
};
if (!options.target) fail('--target is missing.');

try {
  const target = readTarget(readFileSync(options.target ?? '', 'utf8'), process.env);
  const history: History[number][] = [];
  for (let i = 0; i < revocations; i++) history.push(...(await runTrial(target, i, trial)));
  const all = outcomes(history);
  if (options.history)
    writeFileSync(options.history, history.map((event) => `${JSON.stringify(event)}\n`).join(''));
  if (options.plot) writeFileSync(options.plot, drawing(target.name, all));
  if (options.json) console.log(JSON.stringify({ target: target.name, outcomes: all }));
  else {
    const { claimed, window, falseComplete } = summary(all);
    const failed = all.reduce((sum, outcome) => sum + outcome.failed, 0);
    console.log(`${target.name}: ${all.length} revocations, ${history.length - all.length} questions, ${failed} without a verdict
  the call claims that it is over after   ${claimed}   (p50 / p99)
  the key was accepted for                ${window}   (p50 / p99)
  accepted although the call claimed      ${falseComplete}`);
  }
  process.exitCode = all.some(({ falseComplete }) => falseComplete > 0) ? 3 : 0;
} catch (error) {
  console.error((error as Error).message);
  process.exitCode = 1;
}
// Connections that are kept alive would hold the process for some seconds.
process.exit();
