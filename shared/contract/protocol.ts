/**
 * The protocol of this code: what a verifier understands, and a control plane may write. Verifiers from
 * before the protocol had a number speak 1. An older reader would ignore anything it does not know. So
 * everything that needs newer verifiers declares the protocol that it needs (`needs` of a field's row, or of
 * a write), and the scripts refuse older verifiers.
 * - 2: the check of the protocol; credits, rate limits.
 * - 3: permissions.
 * - 4: roles, identities.
 * - 5: named limits that each verification obeys (`autoApply`).
 * - 6: allow lists of addresses.
 */
export const PROTOCOL = 6;

/** Returns the name under which a verifier registers. The scripts read the protocol from it. */
export const memberName = (text: string): string => `${PROTOCOL}.${text}`;

/**
 * Returns the number of the last change, from the head's `s`: `15`, or `2:15` in an API that needs protocol
 * 2.
 */
export const sequenceOf = (s: string | null | undefined): number => Number(s?.split(':').at(-1) ?? 0);

/** Returns the protocol that an API needs, from the head's `s`. */
export const neededBy = (s: string | null | undefined): number =>
  s?.includes(':') ? Number(s.split(':')[0]) : 1;
