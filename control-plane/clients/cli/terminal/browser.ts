import type { Session } from '../session.ts';

/** Programs that open an address in the browser; elsewhere `xdg-open` does. */
const OPENERS: Readonly<Record<string, readonly string[]>> = {
  darwin: ['open'],
  win32: ['rundll32', 'url.dll,FileProtocolHandler'],
};

/**
 * Opens a page of the dashboard in the browser. Prints its address instead where there is no display, or where a program
 * reads the output.
 * @param page its address after the `#/`
 */
export async function openPage(session: Session, page: string): Promise<void> {
  const { DISPLAY, WAYLAND_DISPLAY } = session.config;
  const url = `${(await session.url()).href.replace(/\/+$/, '')}/dashboard/#/${page}`;
  const opener = OPENERS[process.platform] ?? (DISPLAY || WAYLAND_DISPLAY ? ['xdg-open'] : undefined);
  const isOpen = process.stdout.isTTY && !session.json && opener !== undefined && (await start(opener, url));
  if (isOpen) session.note(`opened ${url}`);
  else session.print({ url }, () => url);
}

/** Starts a program that outlives this one; false = there is none. */
async function start([program = '', ...args]: readonly string[], url: string): Promise<boolean> {
  const { spawn } = await import('node:child_process');
  return new Promise((resolve) => {
    const child = spawn(program, [...args, url], { detached: true, stdio: 'ignore' });
    child.once('error', () => resolve(false));
    child.once('spawn', () => resolve(true));
    child.unref();
  });
}
