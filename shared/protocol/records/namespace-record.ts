import { hash } from 'node:crypto';
import { NAMESPACE } from '../../rules/key-format.ts';

/** Returns the id of the record with a namespace's overrides. It is derived from the name, so a name is enough to find it. */
export const namespaceIdOf = (namespace: string): string =>
  `${NAMESPACE}${hash('sha256', namespace).slice(0, 40)}`;

/** An override: the limit of all identifiers that match a pattern, in place of the limit that a caller brings. */
export interface Override {
  readonly id: string;
  /** An identifier, in which each `*` stands for any characters. */
  readonly identifier: string;
  /** 0 = nothing passes. */
  readonly limit: number;
  /** Length of the windows, in milliseconds. */
  readonly duration: number;
}

/** Returns the overrides in the `meta` of a namespace's record. */
export const overridesIn = ({ overrides = [] }: { readonly overrides?: readonly Override[] }) => overrides;

/** Maximum number of overrides of a namespace. A verifier reads all of them at once. */
export const OVERRIDES_MAX = 1000;
/** Maximum number of `*` in an identifier: a verifier tries up to all patterns of a namespace for each call. */
export const WILDCARDS_MAX = 3;
/** Maximum length of a namespace or an identifier, in characters. */
export const IDENTIFIER_MAX = 255;
