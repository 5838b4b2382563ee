import { Resolver } from 'node:dns/promises';
import { readFile } from 'node:fs/promises';
import { isIP, type LookupFunction } from 'node:net';
import type { Clock } from './clock.ts';

/** Longest time to resolve a name, milliseconds. */
const RESOLVE_MS_MAX = 4000;
/** Time after which a name server is asked again, milliseconds; c-ares doubles it for each further try. */
const TRY_MS = 800;
const TRIES = 2;
/** Names that are resolved at once; more than the endpoints of webhooks, so that no endpoint waits for another. */
const AT_ONCE_MAX = 100;
/** Domains of /etc/resolv.conf that are tried, as in the C library. */
const SEARCHED_MAX = 6;

interface Address {
  readonly address: string;
  readonly family: number;
}

/** Resolves a name to all its addresses. */
export type Resolve = (host: string) => Promise<readonly Address[]>;

interface Options {
  /** Name servers, in place of those in /etc/resolv.conf. */
  readonly servers?: readonly string[];
  readonly hostsFile?: string;
  readonly configFile?: string;
}

/**
 * Resolves names as the C library does: by /etc/hosts, then by name servers. It does so without libuv's threads, of
 * which two name servers that never answer would hold all that `dns.lookup` may use: then nothing of the process,
 * such as Redis, could be reached by name.
 */
export class NameResolver {
  readonly #clock: Clock;
  readonly #options: Options;
  readonly #running = new Map<string, Promise<readonly Address[]>>();

  constructor(clock: Clock, options: Options = {}) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Resolves a name within 4 s; all that ask for the same name meanwhile get the same answer. */
  readonly resolve: Resolve = (host) => {
    const running = this.#running.get(host);
    if (running !== undefined) return running;
    if (this.#running.size >= AT_ONCE_MAX)
      return Promise.reject(new Error(`${AT_ONCE_MAX} other names are being resolved; try again`));
    const answer = this.#ask(host).finally(() => this.#running.delete(host));
    this.#running.set(host, answer);
    return answer;
  };

  async #ask(host: string): Promise<readonly Address[]> {
    const { servers, hostsFile = '/etc/hosts', configFile = '/etc/resolv.conf' } = this.#options;
    const listed = addressesIn(await readFile(hostsFile, 'utf8').catch(() => ''), host);
    if (listed.length > 0) return listed;
    const resolver = new Resolver({ timeout: TRY_MS, tries: TRIES });
    if (servers) resolver.setServers(servers);
    const timer = this.#clock.after(RESOLVE_MS_MAX, () => resolver.cancel());
    try {
      for (const name of [host, ...searched(await readFile(configFile, 'utf8').catch(() => ''), host)]) {
        const [v4, v6] = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
        const addresses = [...addressesOf(v4, 4), ...addressesOf(v6, 6)];
        if (addresses.length > 0) return addresses;
        for (const { reason } of [v4, v6] as PromiseRejectedResult[])
          if (!['ENOTFOUND', 'ENODATA'].includes(reason.code))
            throw fault(`the name servers do not answer for ${host} (${reason.code})`, 'EAI_AGAIN');
      }
      throw fault(`no host has the name ${host}`, 'ENOTFOUND');
    } finally {
      timer.cancel();
    }
  }
}

/** Returns what `net.connect` takes to resolve names. */
export function lookupBy(resolve: Resolve): LookupFunction {
  return (host, { all = false }, callback) => {
    resolve(host).then(
      (addresses) => {
        const { address, family } = addresses[0] as Address;
        if (all) callback(null, [...addresses]);
        else callback(null, address, family);
      },
      (error: NodeJS.ErrnoException) => callback(error, all ? [] : '', 0),
    );
  };
}

const fault = (message: string, code: string) => Object.assign(new Error(message), { code });

function addressesOf(result: PromiseSettledResult<string[]>, family: number): Address[] {
  return result.status === 'fulfilled' ? result.value.map((address) => ({ address, family })) : [];
}

/** Returns the words of each line of a file, without comments. */
const wordsIn = (text: string) =>
  text.split('\n').map((line) =>
    line
      .replace(/[#;].*/, '')
      .trim()
      .split(/\s+/),
  );

function addressesIn(hosts: string, host: string): Address[] {
  const name = host.replace(/\.$/, '').toLowerCase();
  return wordsIn(hosts)
    .filter(([, ...names]) => names.some((each) => each.toLowerCase() === name))
    .map(([address = '']) => ({ address, family: isIP(address) }))
    .filter(({ family }) => family > 0);
}

/** Returns the longer names that a name without an address may stand for; none if it ends with a dot. */
function searched(config: string, host: string): string[] {
  const [, ...domains] = wordsIn(config).findLast(([word]) => word === 'search' || word === 'domain') ?? [];
  return host.endsWith('.') ? [] : domains.slice(0, SEARCHED_MAX).map((domain) => `${host}.${domain}`);
}
