/**
 * The protocol that this code speaks: what a verifier obeys, and a control plane may write. Verifiers of before there was
 * a number speak 1. One who reads what it does not know would ignore it, so whatever only newer verifiers obey declares
 * the protocol that it needs (`needs` of a field's row, or of a write), and the scripts hold older ones off.
 * - 2: this gate; credits, rate limits.
 * - 3: permissions.
 * - 4: roles, identities.
 */
export const PROTOCOL = 4;

/** The name under which a verifier registers; the scripts read the protocol from it. */
export const memberName = (text: string): string => `${PROTOCOL}.${text}`;

/** The number of the last change, from the head's `s`: `15`, or `2:15` in an API that needs protocol 2. */
export const sequenceOf = (s: string | null | undefined): number => Number(s?.split(':').at(-1) ?? 0);

/** The protocol that an API needs of its verifiers, from its head's `s`. */
export const neededBy = (s: string | null | undefined): number =>
  s?.includes(':') ? Number(s.split(':')[0]) : 1;
