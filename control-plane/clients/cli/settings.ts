import { type ConfigOf, type Setting, secret, text } from '#shared/process/load-config.ts';

/** Environment variables of the command line; `doctor` also reads the control plane's REDIS_… variables. */
export const settings = {
  KEYFENCE_URL: address('Address of the control plane'),
  KEYFENCE_VERIFIER_URL: address('Address of a verifier, for `keys verify`, `keys self` and `doctor`'),
  KEYFENCE_ROOT_KEY: secret('', 'printable ASCII', firstLine).help(
    'The root key. KEYFENCE_ROOT_KEY_FILE is safer; the first line of that file counts. On a terminal the command asks for it if neither is set',
  ),
  KEYFENCE_KEY: secret('', 'printable ASCII', firstLine).help(
    'The secret that `keys verify`, `keys self` and `keys whoami` ask about. If it is not set, they read standard input, or ask on a terminal',
  ),
  XDG_CONFIG_HOME: text('').help(
    'The folder in which `login` keeps `keyfence/contexts.json`; by default `.config` in your home',
  ),
  DISPLAY: text('').help(
    'On Linux, `--web` opens a browser if this or `WAYLAND_DISPLAY` is set, and else prints the address',
  ),
  WAYLAND_DISPLAY: text('').help('See `DISPLAY`'),
  KEYFENCE_DATA: text('').help(
    'The folder in which `npm start` keeps its files, for `doctor`; by default `.keyfence` in the project',
  ),
};

export type CliConfig = ConfigOf<typeof settings>;

function address(help: string): Setting<URL | undefined> {
  return {
    parse(text) {
      if (text === '') return undefined;
      const url = URL.canParse(text) ? new URL(text) : undefined;
      if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search) {
        throw new Error('is not allowed');
      }
      // Every call adds this path, so a user who wrote it meant the same address.
      url.pathname = url.pathname.replace(/\/v1\/?$/, '/');
      return url;
    },
    default: '',
    rule: 'http:// or https:// URL without credentials',
    help,
  };
}

function firstLine(text: string): string {
  const line = text.split('\n')[0]?.trim() ?? '';
  if (!/^[!-~]*$/.test(line)) throw new Error('is not allowed');
  return line;
}
