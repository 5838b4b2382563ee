/** Other fields of the record in Redis, by their letters. Only Keyfence sets them. */
export const RECORD_FACTS = {
  p: 'SHA-256 of the secret.',
  s: 'The first characters of the secret, so that people can recognize the key.',
  b: 'Number of random bytes in the secret, if it is not 16.',
  f: '`1` if the secret has a foreign format, so that only verifiers with FOREIGN_KEYS on find the key.',
  c: 'Time of creation, in Unix milliseconds.',
  i: 'Creation number.',
  u: 'Time of the last change, in Unix milliseconds.',
  v: 'Version: the sequence number of the last change, and the beginning of its hash.',
  T: 'Only after a rotation: the id of the new key.',
  Y: 'Only after a rotation: the `operationId` and `expiration` of the call.',
  F: 'Only on a key that replaces another key after a rotation: the id of the replaced key.',
  q: 'Name of the pool with the credits of the key. Absent if the key has no credits.',
  M: '`1` if `meta` is longer than 64 bytes. It is then stored under a Redis key of its own.',
} as const;
