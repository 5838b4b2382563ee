import { type Command, Option } from 'commander';
import { CREDITS_MAX } from '#shared/protocol/records/credits.ts';
import { KEY_FIELDS } from '#shared/protocol/records/key-record.ts';
import {
  type Granularity,
  RETENTION,
  USAGE_COLUMNS,
  type UsageField,
} from '#shared/protocol/records/usage.ts';
import type { Refusal } from '../answers.ts';
import { names, whole } from '../arguments.ts';
import { Client } from '../client.ts';
import { CliError } from '../exit.ts';
import { commandAt, WEB_HELP } from '../from-operations.ts';
import { apiIdOf, keyIdOf } from '../key-reference.ts';
import type { Session } from '../session.ts';
import { openPage } from '../terminal/browser.ts';
import { columns, list, table } from '../terminal/output.ts';
import { givenSecret } from '../terminal/prompt.ts';
import { ALLOWANCES, type Allowances } from './words.ts';

const ID = 'key_0mzc9k4q8r2wfXa1Bc2d';

/** Adds `keyfence keys permissions` and `keyfence keys roles`: each stands for three operations. */
export function listCommands(program: Command, session: Session): void {
  const add = (field: 'permissions' | 'roles', value: string, such: string, example: string) =>
    commandAt(
      program,
      `keys ${field} <key> <operation> [${value}]`,
      `add, set or remove ${field} of a key, such as ${such}; when this returns, no verifier uses the old ${field} any more`,
      [`keys ${field} ${ID} ${example}`],
    ).action(async (key: string, operation: string, text = '') => {
      const noun = `${field.charAt(0).toUpperCase()}${field.slice(1)}`;
      if (!/^(add|set|remove)$/.test(operation))
        throw new CliError('USAGE', 'operation: give one of add, set, remove');
      const values = names(text);
      if (values.length === 0 && operation !== 'set')
        throw new CliError('USAGE', `${field}: give at least one`);
      const keyId = await keyIdOf(session, key);
      const response = await session.call<object>(`keys.${operation}${noun}`, { keyId, [field]: values });
      session.print(response, () => `${keyId}: changed its ${field}`);
    });
  add('permissions', 'slugs', 'files.read,files.write', 'add files.read,files.write');
  add('roles', 'names', 'editor,billing', 'set editor');
}

/** Numbers of verdicts: of an hour or a day, with one tag, or with any tag that has no row of its own. */
type UsageRow = Readonly<Record<UsageField, number>> & { readonly time?: number; readonly tag?: string };

/** Adds `keyfence keys usage`. */
export function keyUsageCommand(program: Command, session: Session): void {
  commandAt(program, 'keys usage <key>', 'how often a key was verified, per day', [
    `keys usage ${ID} --hourly`,
  ])
    .option('--hourly', 'per hour, as far back as counts are kept')
    .option('--web', WEB_HELP)
    .action(async (key: string, { hourly, web }) => {
      const keyId = await keyIdOf(session, key);
      if (web) return openPage(session, `keys/${keyId}`);
      await printUsage(session, 'keys.getVerifications', { keyId, granularity: hourly ? 'hour' : 'day' });
    });
}

/** Adds `keyfence apis usage`. */
export function apiUsageCommand(program: Command, session: Session): void {
  const help = 'how often keys of an API were verified, per day, or by the tags of verifications';
  commandAt(program, 'apis usage <apiId>', help, ['apis usage shop --by-tag'])
    .addOption(new Option('--hourly', 'per hour, as far back as counts are kept').conflicts(['tag', 'byTag']))
    .addOption(new Option('--minutes', 'per minute, for the last hour').conflicts(['hourly', 'tag', 'byTag']))
    .addOption(new Option('--tag <tag>', 'only with this tag').conflicts('byTag'))
    .option('--by-tag', 'by tag, over all days whose counts are kept')
    .option('--web', WEB_HELP)
    .action(async (api: string, { hourly, minutes, tag, byTag, web }) => {
      const apiId = await apiIdOf(await session.controlPlane(), api);
      if (web) return openPage(session, `apis/${encodeURIComponent(apiId)}?tab=traffic`);
      const granularity: Granularity = minutes ? 'minute' : hourly ? 'hour' : 'day';
      const query = { apiId, tag, granularity };
      return printUsage(session, 'apis.getVerifications', { ...query, ...(byTag ? { groupBy: 'tag' } : {}) });
    });
}

/** Titles that are shorter than the names of fields. */
const TITLES: Partial<Record<UsageField, string>> = {
  ...{ insufficientPermissions: 'permissions', rateLimited: 'limit' },
  ...{ concurrencyExceeded: 'concurrency', usageExceeded: 'credits' },
};

/** Prints how often something was verified, leaving out periods without verdicts, and kinds of refusals that there were not. */
async function printUsage(
  session: Session,
  operation: string,
  query: { readonly granularity: Granularity; readonly [name: string]: unknown },
): Promise<void> {
  const response = await session.call<{ verifications: UsageRow[] }>(operation, query);
  const byTag = response.verifications.some(({ time: at }) => at === undefined);
  const rows = response.verifications.filter((row) => USAGE_COLUMNS.some(({ field }) => row[field] > 0));
  const kinds = USAGE_COLUMNS.map(({ field }) => field).filter((field) => field !== 'success');
  const counted = kinds.filter((field) => rows.some((row) => row[field] > 0));
  const { granularity } = query;
  session.print(response, () =>
    rows.length === 0
      ? `No verification is counted in the last ${RETENTION[granularity]} ${granularity}s.`
      : table(
          rows,
          {
            ...(byTag ? { tag: ({ tag }) => tag ?? '(others)' } : columns('from:time')),
            accepted: 'success',
            ...Object.fromEntries(counted.map((field) => [TITLES[field] ?? field, field])),
          },
          // Lines may wrap: no kind of refusal is left out to fit the terminal.
          Number.POSITIVE_INFINITY,
        ),
  );
}

/** Adds `keyfence keys refusals`: the refusals of a key, or that of a request. */
export function refusalsCommand(program: Command, session: Session): void {
  const help = 'show why a key was refused lately, or which key the refusal of one request is about';
  commandAt(program, 'keys refusals [key]', help, [`keys refusals ${ID}`])
    .option('--request <requestId>', 'the id of the request, in place of a key')
    .action(async (key: string | undefined, { request: requestId }) => {
      if ((key === undefined) === (requestId === undefined))
        throw new CliError('USAGE', 'name a key, or a request with --request');
      if (key === undefined) {
        const located = await session.call<{ refusal: Refusal }>('verdicts.find', { requestId });
        const { refusal, ...about } = located;
        return session.print(located, () => list({ ...about, ...refusal, question: undefined }));
      }
      const keyId = await keyIdOf(session, key);
      const response = await session.call<{ refusals: Refusal[] }>('keys.listRefusals', { keyId });
      session.print(response, () =>
        table(response.refusals, {
          time: 'time',
          ...columns('code why:detail requestId clientIp origin route'),
        }),
      );
    });
}

interface Question {
  readonly api?: string;
  readonly cost?: number;
  readonly permissions?: string;
  readonly clientIp?: string;
  readonly origin?: string;
  readonly request?: string;
}

/** Adds `keyfence keys explain` and `keyfence keys verify`, which ask the same question, and `keyfence keys self`. */
export function questionCommands(program: Command, session: Session): void {
  const secret = 'the secret in KEYFENCE_KEY, on standard input or typed at a prompt';
  const explain = `show rule by rule how a question about a key would be decided; without a key, about ${secret}`;
  addQuestion(
    commandAt(program, 'keys explain [key]', explain, [
      `keys explain ${ID} --api shop --permissions 'files.read OR files.write'`,
      'keys explain --request 0mzc9k4q8r2wfXa1',
    ]).option('--request <requestId>', 'the question of this refused request: would it pass now?'),
  ).action(async (key: string | undefined, { api, request, ...question }: Question) => {
    const input =
      request === undefined
        ? {
            ...(await keyIn(session, key)),
            apiId: api && (await apiIdOf(await session.controlPlane(), api)),
            ...question,
          }
        : await refusedQuestion(session, request);
    const explanation = await session.call<Explanation>('keys.explain', input);
    session.print(explanation, () => {
      const rules = table(explanation.rules, {
        rule: 'rule',
        passed: ({ passed }) => (passed ? 'yes' : 'NO'),
        detail: 'detail',
      });
      return `${list(explanation, columns('code keyId'))}\n\n${rules}`;
    });
    if (!explanation.valid) session.end('NO');
  });

  addQuestion(
    commandAt(program, 'keys verify', `ask a verifier about ${secret}`, [
      'keys verify --api shop < secret.txt',
    ]),
  ).action(async ({ api, cost, permissions, clientIp, origin }: Question) => {
    await session.verifierUrl(); // nobody should enter a secret in vain
    const verdict = await session.verdict<{ valid: boolean }>({
      ...{ key: await givenSecret(session.config.KEYFENCE_KEY), apiId: api, clientIp, origin },
      ...(cost === undefined ? {} : { remaining: { cost } }),
      ...(permissions === undefined ? {} : { authorization: { permissions } }),
    });
    const fields = columns(`code keyId apiId ${Object.keys(KEY_FIELDS).join(' ')} identity remaining`);
    session.print(verdict, () => list(verdict, fields));
    if (!verdict.valid) session.end('NO');
  });

  const self = `show what a key has left, as its holder sees it, without a root key: ask a verifier with ${secret}`;
  commandAt(program, 'keys self', self, ['keys self < secret.txt']).action(async () => {
    const url = await session.verifierUrl();
    const client = new Client(url, 'verifier', await givenSecret(session.config.KEYFENCE_KEY));
    const key = await session.callPatiently<Allowances>(client, 'keys.getSelf', {});
    const fields = columns('keyId apiId name externalId environment plan:roles permissions expires');
    session.print(key, () => list(key, { ...fields, ...ALLOWANCES }));
  });
}

const keyIn = async (session: Session, key: string | undefined) =>
  key === undefined
    ? { key: await givenSecret(session.config.KEYFENCE_KEY) }
    : { keyId: await keyIdOf(session, key) };

/** The question of a refused request, about its key. */
async function refusedQuestion(session: Session, requestId: string) {
  const { keyId, refusal } = await session.call<{ keyId: string; refusal: Refusal }>('verdicts.find', {
    requestId,
  });
  if (refusal.question === undefined)
    throw new CliError('DATA', `${requestId}: its question is not known; name the key and its parts`);
  return { keyId, ...refusal.question };
}

interface Explanation {
  readonly valid: boolean;
  readonly rules: readonly { readonly rule: string; readonly passed: boolean; readonly detail: string }[];
}

const addQuestion = (command: Command): Command =>
  command
    .option('--api <apiId>', 'the API that the key must belong to')
    .option(
      '--cost <credits>',
      'credits that it costs, if the key has credits; default: 1; 0 checks without spending',
      whole(0, CREDITS_MAX),
    )
    .option('--client-ip <address>', 'address of the client, for a key with allowed addresses')
    .option('--origin <origin>', 'origin of the web page, for a key with allowed origins')
    .option(
      '--permissions <query>',
      'permissions that the key must have, such as "files.read AND files.write"',
    );
