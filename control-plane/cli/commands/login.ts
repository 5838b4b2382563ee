import type { Command } from 'commander';
import { Client } from '../client.ts';
import { CliError } from '../exit.ts';
import { commandAt } from '../from-operations.ts';
import type { Session } from '../session.ts';
import { settings } from '../settings.ts';
import { table } from '../terminal/output.ts';
import { givenSecret } from '../terminal/prompt.ts';

/** Adds `keyfence login`, `contexts` and `logout`. */
export function loginCommands(program: Command, session: Session): void {
  const help =
    'keep the address of a control plane and a root key for later commands; the root key is in KEYFENCE_ROOT_KEY, on standard input or typed at a prompt';
  commandAt(program, 'login <url>', help, ['login https://keys.example.com --name production'])
    .option('--name <context>', 'what to call it', 'default')
    .action(async (text: string, { name }: { name: string }) => {
      const { contexts } = session;
      const url = addressIn(text);
      const rootKey = await givenSecret(session.rootKeyIn(), 'Root key: ', 'KEYFENCE_ROOT_KEY_FILE');
      await new Client(url, 'control plane', rootKey).call('apis.listApis', { limit: 1 });
      const stored = contexts.read();
      const context = { url: url.href, rootKey };
      contexts.write({ current: name, contexts: { ...stored.contexts, [name]: context } });
      session.print({ name, url: url.href }, () => `${name}: ${url.href}`);
    });

  commandAt(program, 'contexts [name]', 'list what was signed in to, or choose which of it applies', [
    'contexts production',
  ]).action((name?: string) => {
    const { contexts } = session;
    const stored = contexts.read();
    if (name !== undefined) contexts.write({ ...stored, current: existing(stored.contexts, name) });
    const current = name ?? stored.current;
    const rows = Object.entries(stored.contexts).map(([each, { url }]) => ({
      ...{ name: each, url, applies: each === current },
    }));
    session.print({ contexts: rows }, () =>
      table(rows, { applies: ({ applies }) => (applies ? '*' : ''), name: 'name', url: 'url' }),
    );
  });

  commandAt(program, 'logout [name]', 'forget a context, by default the one that applies', [
    'logout production',
  ]).action((name?: string) => {
    const { contexts } = session;
    const stored = contexts.read();
    const former = existing(stored.contexts, name ?? stored.current ?? '');
    const { [former]: _forgotten, ...others } = stored.contexts;
    contexts.write({
      current: stored.current === former ? undefined : stored.current,
      contexts: others,
    });
    session.print({ name: former }, () => `forgot ${former}`);
  });
}

function addressIn(text: string): URL {
  const { parse, rule } = settings.KEYFENCE_URL;
  try {
    return parse(text);
  } catch {
    throw new CliError('USAGE', `url: is not allowed (${rule})`);
  }
}

function existing(contexts: object, name: string): string {
  if (Object.hasOwn(contexts, name)) return name;
  const names = Object.keys(contexts).join(', ') || 'none; run keyfence login';
  throw new CliError('NO', `there is no context ${name}; there is: ${names}`, { code: 'NOT_FOUND' });
}
