import { readFileSync } from 'node:fs';

/** A field of a request, as far as an option or an argument needs to know it. */
export interface Field {
  readonly name: string;
  readonly kind: 'text' | 'secret' | 'whole' | 'time' | 'flag' | 'names' | 'list' | 'object';
  readonly help: string;
  /** True if a call needs it. */
  readonly required?: true;
  /** True if `null` clears it. */
  readonly clearable?: true;
  /** The value of a flag that is not given. */
  readonly byDefault?: boolean;
  readonly choices?: readonly string[];
  /** Bounds of a whole number. */
  readonly bounds?: readonly [min: number, max: number];
}

/** An operation of the control plane, as far as a command follows from it. */
export interface OperationRow {
  readonly name: string;
  /** The words of its command, such as `root-keys create`. */
  readonly words: string;
  readonly summary: string;
  readonly description: string;
  readonly fields: readonly Field[];
  /** The listed items: the answer's field with them (`''`: the answer itself is the list), and their fields. */
  readonly list?: { readonly field: string; readonly columns: readonly string[]; readonly paged: boolean };
  /** True if a call takes an Idempotency-Key. */
  readonly adds?: true;
  readonly example: Readonly<Record<string, unknown>>;
}

/**
 * Returns the operations as `npm run docs` writes them: to import the operations themselves would load the server, and
 * take the command line a third of a second.
 */
export const operationRows = (): readonly OperationRow[] =>
  JSON.parse(readFileSync(new URL('./operations.json', import.meta.url), 'utf8'));
