import { systemClock } from '#shared/process/clock.ts';
import { count, safe } from './output.ts';

const REDRAW_MS = 100;
const BAR_WIDTH = 24;

/** A progress line on the terminal; prints nothing if standard error is not a terminal. */
export class Progress {
  readonly #startedAtMs = systemClock.monotonicMs();
  readonly #isTerminal = process.stderr.isTTY === true;
  readonly #isQuiet: boolean;
  #lastText = '';
  #drawnAtMs = Number.NEGATIVE_INFINITY;

  /** @param isQuiet true = messages are not printed, because the output is for scripts */
  constructor(isQuiet: boolean) {
    this.#isQuiet = isQuiet;
  }

  /**
   * @param share the completed part, 0..1; undefined = unknown
   * @param items number done since the start of this run
   */
  show(share: number | undefined, items: number, text: string): void {
    const nowMs = systemClock.monotonicMs();
    if (!this.#isTerminal || nowMs - this.#drawnAtMs < REDRAW_MS) return;
    this.#drawnAtMs = nowMs;
    const full = Math.round((share ?? 0) * BAR_WIDTH);
    const bar =
      share === undefined
        ? ''
        : `${'█'.repeat(full)}${'░'.repeat(BAR_WIDTH - full)} ${Math.floor(share * 100)} % `;
    const perSecond = Math.round((items * 1000) / Math.max(1, nowMs - this.#startedAtMs));
    const line = `${bar}${text} ${count(perSecond)}/s`;
    process.stderr.write(`\r\x1b[K${line.slice(0, (process.stderr.columns || 80) - 1)}`);
  }

  /** Prints a message on its own line, unless it repeats the last one. */
  readonly say = (text: string): void => {
    if (this.#isQuiet || text === this.#lastText) return;
    this.#lastText = text;
    this.clear();
    process.stderr.write(`${safe(text)}\n`);
  };

  /** Removes the progress line, so that something else can be printed. */
  clear(): void {
    if (this.#isTerminal) process.stderr.write('\r\x1b[K');
    this.#drawnAtMs = Number.NEGATIVE_INFINITY;
  }
}
