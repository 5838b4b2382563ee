/** Record of a run: as a number that two runs of one seed must share, and as text where somebody wants to read it. */
export class Trace {
  readonly #lines: string[] | undefined;
  #hash = 0x811c9dc5;
  #count = 0;

  constructor(keepsLines = false) {
    this.#lines = keepsLines ? [] : undefined;
  }

  add(atMs: number, parts: readonly (string | number | boolean)[]): void {
    const line = `${atMs.toFixed(3)} ${parts.join(' ')}`;
    for (let i = 0; i < line.length; i++) this.#hash = Math.imul(this.#hash ^ line.charCodeAt(i), 0x01000193);
    this.#count++;
    this.#lines?.push(line);
  }

  /** FNV-1a over all lines, and how many there were. */
  get hash(): string {
    return `${(this.#hash >>> 0).toString(16).padStart(8, '0')}-${this.#count}`;
  }

  /** Something that only a reader wants to know. */
  detail(atMs: number, text: () => string): void {
    this.#lines?.push(`${atMs.toFixed(3)}   ${text()}`);
  }

  get lines(): readonly string[] {
    return this.#lines ?? [];
  }
}
