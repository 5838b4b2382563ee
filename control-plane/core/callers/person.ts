import { createHash } from 'node:crypto';
import type { Person } from '../schema/person.ts';
import { PERMISSION_PATTERN, PRESETS } from './root-permissions.ts';

/** Values of the claims that decide on permissions, by the claim. */
export type Attributes = Readonly<Record<string, readonly string[]>>;

/** A line of OIDC_PERMISSIONS: permissions of every person with this value of the claim. */
export interface PersonRule {
  readonly claim: string;
  readonly value: string;
  readonly permissions: readonly string[];
}

/** A person as the identity provider described them, and what it gave to ask about them again. */
export interface SignIn {
  readonly person: Person;
  readonly attributes: Attributes;
  readonly tokens: ProviderTokens;
}

/** Tokens of the identity provider. Redis has them only encrypted. */
export interface ProviderTokens {
  readonly idToken?: string;
  readonly refreshToken?: string;
}

const RULE = /^([^\s="]+)=(?:"([^"]+)"|([^\s"]+))\s+(\S.*)$/;
const PERMISSION = new RegExp(PERMISSION_PATTERN);
/** Characters of a name or an address that are kept. */
const TEXT_LENGTH_MAX = 200;

/** Parses OIDC_PERMISSIONS, one rule a line. Throws an error that names the line. */
export function parsePersonRules(text: string): readonly PersonRule[] {
  const lines = text.split(/\r?\n/).map((line) => line.trim());
  return lines.filter(Boolean).map((line) => {
    const [, claim, quotedValue, plainValue, words] = RULE.exec(line) ?? [];
    const value = quotedValue ?? plainValue;
    if (claim === undefined || value === undefined || words === undefined)
      throw new Error(`"${line}" must be <claim>=<value>, a space, and permissions or a preset`);
    return { claim, value, permissions: words.split(/\s+/).flatMap(permissionsIn) };
  });
}

function permissionsIn(word: string): readonly string[] {
  const preset = Object.hasOwn(PRESETS, word) ? PRESETS[word] : undefined;
  if (!preset && !PERMISSION.test(word))
    throw new Error(`"${word}" is neither a permission nor one of ${Object.keys(PRESETS).join(', ')}`);
  return preset?.permissions ?? [word];
}

/** Returns the permissions of a person: the union of all rules that match. */
export const permissionsOf = (rules: readonly PersonRule[], attributes: Attributes): string[] => [
  ...new Set(
    rules
      .filter(({ claim, value }) => attributes[claim]?.includes(value))
      .flatMap(({ permissions }) => permissions),
  ),
];

/** Picks the claims that the rules name. An address counts only if the provider has verified it. */
export function attributesOf(
  rules: readonly PersonRule[],
  source: Readonly<Record<string, unknown>>,
): Attributes {
  return Object.fromEntries(
    rules.map(({ claim }) => {
      const values = claim === 'email' && !isVerified(source) ? [] : [source[claim]].flat();
      return [claim, values.filter((value) => /^(string|number|boolean)$/.test(typeof value)).map(String)];
    }),
  );
}

const isVerified = (source: Readonly<Record<string, unknown>>): boolean =>
  String(source['email_verified']) === 'true';

/** Returns the person whom these claims describe. An address that is not verified is not theirs. */
export function personOf(issuer: string, subject: string, source: Readonly<Record<string, unknown>>): Person {
  const name = textOf(source['name'] ?? source['preferred_username']);
  const email = isVerified(source) ? textOf(source['email']) : undefined;
  return {
    ...{ personId: personIdOf(issuer, subject), subject },
    ...(name === undefined ? {} : { name }),
    ...(email === undefined ? {} : { email }),
  };
}

/** The id of a person: another provider may have given the same subject to somebody else. */
export const personIdOf = (issuer: string, subject: string): string =>
  `person_${createHash('sha256')
    .update(JSON.stringify([issuer, subject]))
    .digest('hex')
    .slice(0, 40)}`;

const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value.slice(0, TEXT_LENGTH_MAX) : undefined;
