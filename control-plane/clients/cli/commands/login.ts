import type { Command } from 'commander';
import { Client } from '../client.ts';
import type { Context } from '../contexts.ts';
import { CliError } from '../exit.ts';
import { commandAt } from '../from-operations.ts';
import type { Session } from '../session.ts';
import { settings } from '../settings.ts';
import { contextsHere, targetOfEnvironment, targetOfStart } from '../target.ts';
import { columns, table } from '../terminal/output.ts';
import { givenSecret } from '../terminal/prompt.ts';

/** Adds `keyfence login`, `contexts` and `logout`. */
export function loginCommands(program: Command, session: Session): void {
  const help =
    'keep the address of a control plane and a root key for later commands; the root key is in KEYFENCE_ROOT_KEY, on standard input or typed at a prompt';
  commandAt(program, 'login <url>', help, [
    'login https://keys.example.com --name production --verifier http://127.0.0.1:3001',
  ])
    .option('--name <context>', 'what to call it', 'default')
    .option('--verifier <url>', 'address of a verifier, for `keys verify` and `doctor`')
    .action(async (text: string, { name, verifier }: { name: string; verifier?: string }) => {
      const contexts = contextsHere();
      const url = addressIn('url', text);
      if (name === START) throw new CliError('USAGE', `name: ${START} stands for npm start; choose another`);
      const env = targetOfEnvironment();
      if (env?.rootKey && env.url && env.url.href !== url.href)
        throw new CliError(
          'USAGE',
          `the root key of the environment is for ${env.url.href}, which KEYFENCE_URL names: unset it, or log in there`,
        );
      const verifierUrl = verifier === undefined ? undefined : addressIn('verifier', verifier).href;
      const rootKey = await givenSecret(
        env?.rootKey ?? '',
        `Root key for ${url.origin}: `,
        'KEYFENCE_ROOT_KEY_FILE',
      );
      await new Client(url, 'control plane', rootKey).call('apis.listApis', { limit: 1 });
      const stored = contexts.read();
      contexts.write({
        current: name,
        contexts: { ...stored.contexts, [name]: { url: url.href, rootKey, verifierUrl } },
      });
      session.print({ name, url: url.href, verifierUrl }, () => `${name}: ${url.href}`);
      await noteEnvironment(session);
    });

  const list = `list what was signed in to, or choose which of it applies; ${START} is a running npm start`;
  commandAt(program, 'contexts [name]', list, ['contexts production']).action(async (name?: string) => {
    const contexts = contextsHere();
    const stored = contexts.read();
    const started = await targetOfStart();
    const places: Record<string, Pick<Context, 'url' | 'verifierUrl'>> = {
      ...stored.contexts,
      ...(started
        ? { [START]: { url: started.url?.href ?? '', verifierUrl: started.verifierUrl?.href } }
        : {}),
    };
    if (name !== undefined) {
      const current = existing(places, name);
      contexts.write({ ...stored, current: current === START ? undefined : current });
    }
    const target = await session.target;
    const applied = target?.from === 'npm start' ? START : target?.name;
    const rows = Object.entries(places).map(([each, { url, verifierUrl }]) => ({
      ...{ name: each, url, verifier: verifierUrl, applies: each === applied },
    }));
    session.print({ contexts: rows }, () =>
      table(rows, {
        applies: ({ applies }) => (applies ? '*' : ''),
        ...columns('name url verifier'),
      }),
    );
    await noteEnvironment(session);
  });

  commandAt(program, 'logout [name]', 'forget a context, by default the chosen one', [
    'logout production',
  ]).action((name?: string) => {
    const contexts = contextsHere();
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

/** The name by which `contexts` shows and chooses `npm start`. */
const START = 'npm-start';

async function noteEnvironment(session: Session): Promise<void> {
  const target = await session.target;
  if (target?.from !== 'the environment') return;
  session.note(
    `No context applies: the environment comes first (${target.url?.origin ?? 'without KEYFENCE_URL'}).`,
  );
}

function addressIn(field: string, text: string): URL {
  const { parse, rule } = settings.KEYFENCE_URL;
  try {
    const url = parse(text);
    if (url) return url;
  } catch {
    // said below
  }
  throw new CliError('USAGE', `${field}: is not allowed (${rule})`);
}

function existing(contexts: object, name: string): string {
  if (Object.hasOwn(contexts, name)) return name;
  const names = Object.keys(contexts).join(', ') || 'none; run keyfence login';
  throw new CliError('NO', `there is no context ${name}; there is: ${names}`, { code: 'NOT_FOUND' });
}
