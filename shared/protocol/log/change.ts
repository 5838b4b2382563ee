import { decodeState, KEY_LETTERS, type KeyState } from '../records/key-record.ts';

/**
 * An entry of an API's change log. `hash` covers the whole history up to this entry (SHA-1 over the previous
 * hash, sequence, keyId and payload), so equal position and hash mean equal prefix.
 */
export interface Change {
  readonly sequence: number;
  readonly hash: string;
  /** Empty for entries about the whole API. */
  readonly keyId: string;
  readonly payload: string;
}

/** A published change, with the hash of its predecessor, by which a receiver recognizes the next change. */
export interface PublishedChange extends Change {
  readonly previousHash: string;
}

/** Parses `sequence|previousHash|hash|keyId|payload`; undefined = the message has another form. */
export function parsePublished(message: string): PublishedChange | undefined {
  const match = /^(\d{1,15})\|([0-9a-f]{0,40})\|([0-9a-f]{40})\|([A-Za-z0-9_]*)\|(.*)$/s.exec(message);
  if (!match) return undefined;
  const [, sequence, previousHash = '', hash = '', keyId = '', payload = ''] = match;
  return { sequence: Number(sequence), previousHash, hash, keyId, payload };
}

/** The effect of a change on a follower's memory. */
export type Effect =
  | { readonly kind: 'set'; readonly secretHash: string; readonly state: KeyState }
  /** The key was deleted, or its new state was too long for the log: the follower must forget the key. */
  | { readonly kind: 'forget'; readonly secretHash: string; readonly pool: string; readonly firstId: string }
  | { readonly kind: 'api-deleted' }
  | { readonly kind: 'nothing' };

/**
 * Parses a secret's hash, the name of the key's pool of credits, and the id of the first key of its rotations, with a
 * space between them. The last two may be empty or absent. Ignores what follows.
 */
export function readNamed(text: string): { secretHash: string; pool: string; firstId: string } {
  const [secretHash = '', pool = '', firstId = ''] = text.split(' ');
  return { secretHash, pool, firstId };
}

/**
 * Decodes the payload of a change, as write-change.lua wrote it. Throws if the payload is damaged.
 */
export function effectOf(change: Change): Effect {
  if (change.payload === '') return { kind: 'nothing' };
  const fields: unknown = JSON.parse(change.payload);
  if (!Array.isArray(fields) || !fields.every((field) => typeof field === 'string')) {
    throw new Error(`change ${change.sequence} has a damaged payload`);
  }
  const [kind = '', named = '', ...state] = fields;
  if (kind === 'api-deleted') return { kind };
  const { secretHash, ...rest } = readNamed(named);
  if (kind === 'set' && secretHash) {
    // A control plane of an older release than this verifier writes fewer fields than the record may have.
    if (state.length < KEY_LETTERS.length) return { kind: 'forget', secretHash, ...rest };
    return { kind, secretHash, state: decodeState(state, rest) };
  }
  if (kind === 'forget' && secretHash) return { kind, secretHash, ...rest };
  throw new Error(`change ${change.sequence} is of an unknown kind`);
}
