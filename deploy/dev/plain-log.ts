import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';

/** Prints the log of a process for people: one line per log line, without stacks. */
export function printPlainly(log: Readable, name: string, print: (line: string) => void): void {
  createInterface({ input: log }).on('line', (line) => print(plainLine(line, name)));
}

/**
 * Formats a JSON log line as its message, its fields and the reason of its error; returns any other line
 * unchanged.
 */
export function plainLine(line: string, name: string): string {
  const entry = parse(line);
  if (entry === undefined) return line;
  const { level, time: _time, process: _process, msg = '', err, ...fields } = entry;
  const details = Object.entries(fields).map(([field, value]) => `${field} ${text(value)}`);
  const sentence = details.length > 0 ? `${msg} (${details.join(', ')})` : msg;
  return `${name}: ${LEVELS[String(level)] ?? ''}${[sentence, ...reasons(err)].join(': ')}`;
}

const LEVELS: Readonly<Record<string, string>> = { 40: 'warning: ', 50: 'error: ', 60: 'error: ' };

interface LogLine {
  readonly [field: string]: unknown;
  readonly msg?: string;
}

function parse(line: string): LogLine | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === 'object' && value !== null && 'level' in value ? (value as LogLine) : undefined;
  } catch {
    return undefined; // not a line of the log
  }
}

/** Returns an error's message, which pino has joined with those of its causes. */
function reasons(error: unknown): string[] {
  const { message } = (error ?? {}) as { message?: unknown };
  return typeof message === 'string' && message !== '' ? [message] : [];
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value);
}
