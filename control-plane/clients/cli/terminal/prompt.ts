import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { isWellFormed, startOf } from '#shared/rules/key-format.ts';
import { wordsIn } from '#shared/rules/words-in-text.ts';
import { CliError } from '../exit.ts';

/** True on a terminal, where a person can answer. */
export const canPrompt = (): boolean => process.stdin.isTTY === true && process.stderr.isTTY === true;

/** Asks a question on the terminal. Rejects with INTERRUPTED on Ctrl-C and Ctrl-D. */
export const prompt = (question: string): Promise<string> => readAnswer(question, process.stderr);

/** Asks for a secret on the terminal, without echoing what is typed. */
export async function promptSecret(question: string): Promise<string> {
  const secret = await readAnswer(question, new Writable({ write: (_chunk, _encoding, done) => done() }));
  process.stderr.write('\n');
  return secret;
}

async function readAnswer(question: string, echo: NodeJS.WritableStream): Promise<string> {
  // From here on the terminal does not echo, so print the question only now.
  const lines = createInterface({ input: process.stdin, output: echo, terminal: true, historySize: 0 });
  const hangUp = new AbortController();
  lines.once('SIGINT', () => hangUp.abort()).once('close', () => hangUp.abort());
  try {
    if (echo !== process.stderr) process.stderr.write(question);
    return (await lines.question(question, { signal: hangUp.signal })).trim();
  } catch (error) {
    throw new CliError('INTERRUPTED', 'nothing was entered', { cause: error });
  } finally {
    lines.close();
  }
}

/** The first line of standard input, of at most 4 KiB. */
async function readInput(): Promise<string> {
  let text = '';
  for await (const chunk of process.stdin) {
    text += String(chunk);
    if (text.includes('\n') || text.length > 4096) break;
  }
  return text.split('\n')[0]?.trim() ?? '';
}

/**
 * Reads a secret, which is no argument, from the environment, a prompt or standard input; of a line of a log the key in it.
 * Rejects with USAGE if that has several keys.
 */
export async function givenSecret(
  configuredKey: string,
  question = 'Key: ',
  setting = 'KEYFENCE_KEY_FILE',
): Promise<string> {
  const text = configuredKey || (canPrompt() ? await promptSecret(question) : await readInput());
  if (!text) throw new CliError('USAGE', `no key: set ${setting}, or give it on standard input`);
  const [key, ...others] = new Set(wordsIn(text).filter(isWellFormed));
  if (key === undefined || others.length === 0) return key ?? text;
  const starts = [key, ...others].map((each) => `${startOf(each)}…`).join(', ');
  throw new CliError(
    'USAGE',
    `the line has ${others.length + 1} keys (${starts}): give only the one that you mean`,
  );
}
