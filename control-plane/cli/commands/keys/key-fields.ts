import type { Command } from 'commander';
import { Option } from 'commander';
import type { Refill } from '#shared/contract/credits.ts';
import { KEY_FIELDS, type KeyField, type KeyFields, type Kind } from '#shared/contract/key-record.ts';
import type { Key } from '../../../redis/keys/key-view.ts';
import { jsonList, jsonObject, names, rateLimit, refillPlan } from '../../arguments.ts';
import type { Session } from '../../session.ts';
import { count, list, time } from '../../terminal/output.ts';
import { TimeOption } from '../../times.ts';
import { credits } from './credits.ts';

const parsers = {
  text: String,
  object: jsonObject,
  limit: rateLimit,
  limits: jsonList,
  slugs: names,
  ranges: names,
};

/** Adds the options that set the fields of a key. */
export function addFieldOptions(command: Command): Command {
  for (const [name, row] of Object.entries(KEY_FIELDS)) {
    if (!('option' in row)) continue;
    const [argument, help] = row.option;
    const flag = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    const flags = `--${flag} ${argument}`;
    command.addOption(
      row.kind === 'time'
        ? new TimeOption(flags, help, { sign: '+', date: 'after' })
        : new Option(flags, help).argParser<unknown>(parsers[row.kind]),
    );
  }
  return command
    .option(
      '--remaining <credits>',
      'number of credits; each verification costs one, or the cost that it names',
      credits,
    )
    .option(
      '--refill <plan>',
      'when credits are refilled: daily:<credits>, monthly:<credits> or monthly:<credits>:<day>',
      refillPlan,
    );
}

interface IdentityReference {
  readonly identity?: { readonly id: string };
}

/** Prints a key: its fields for people, the response for scripts. */
export function showKey(session: Session, key: Key & IdentityReference & { lastUsedAt?: number }): void {
  const { identity, ...fields } = key;
  session.print(key, () =>
    list({
      keyId: key.keyId,
      apiId: key.apiId,
      start: key.start || undefined,
      ...fieldTexts(fields),
      identity: identity?.id,
      remaining: numberText(key.remaining),
      remainingHeld: numberText(key.remainingHeld),
      remainingLost: numberText(key.remainingLost),
      refill: key.refill && refillOf(key.refill),
      created: time(key.createdAt),
      updated: time(key.updatedAt),
      rerolledTo: key.rerolledTo,
      rerolledFrom: key.rerolledFrom,
      lastUsed: time(key.lastUsedAt),
    }),
  );
}

/** The fields of a key as people read them; undefined for a field without a value. */
export function fieldTexts(key: Partial<KeyFields>): Record<string, string | undefined> {
  const names = Object.keys(KEY_FIELDS) as KeyField[];
  return Object.fromEntries(
    names.map((name) => [name, textOf(key[name], KEY_FIELDS[name].kind, name === 'roles' ? ', ' : ' ')]),
  );
}

function textOf(value: unknown, kind: Kind, separator: string): string | undefined {
  if (value === undefined) return undefined;
  if (kind === 'time') return time(Number(value));
  if (Array.isArray(value) && (kind === 'slugs' || kind === 'ranges'))
    return value.join(separator) || undefined;
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Formats a number for people. */
export const numberText = (value: number | undefined) => (value === undefined ? undefined : count(value));

const refillOf = ({ interval, amount, refillDay }: Refill) =>
  `${count(amount)} ${interval}${refillDay === undefined ? '' : ` on day ${refillDay}`}`;
