/**
 * The protocol of this code: what a verifier understands, and a control plane may write. An older verifier would
 * ignore a field that it does not know. So a write that needs newer verifiers says which protocol it needs, and the
 * scripts refuse older verifiers (gate.lua, register.lua, sync.lua). Raise it with the first such field.
 */
export const PROTOCOL = 2;

/** Returns the name under which a verifier registers. The scripts read the protocol from it. */
export const memberName = (text: string): string => `${PROTOCOL}.${text}`;
