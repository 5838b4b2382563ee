/** A message for endpoints. */
export interface Message {
  /** The `webhook-id`. */
  readonly id: string;
  readonly type: string;
  /** Messages with the same order are delivered one after the other. */
  readonly order: string;
  readonly body: string;
}

/** Returns the message in the fields of an entry. */
export function messageOf(fields: readonly string[]): Message {
  const values = fieldsOf(fields);
  const text = (name: string) => String(values[name] ?? '');
  return { id: text('i'), type: text('t'), order: text('k'), body: text('e') };
}

/** Returns names and values that alternate in a reply of Redis. */
export function fieldsOf(reply: unknown): Record<string, unknown> {
  const flat = reply as readonly unknown[];
  return Object.fromEntries(
    Array.from({ length: flat.length / 2 }, (_, i) => [String(flat[2 * i]), flat[2 * i + 1]]),
  );
}
