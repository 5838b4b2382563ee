import { BlockList, isIP } from 'node:net';
import type { Setting } from '../../../shared/process/load-config.ts';

/** Addresses of proxies that are trusted to name their clients. */
export class TrustedProxies {
  readonly #list = new BlockList();
  readonly #isEmpty: boolean;

  /** @param items addresses, and networks such as `10.0.0.0/8`. Throws if an item is neither */
  constructor(items: readonly string[]) {
    this.#isEmpty = items.length === 0;
    for (const item of items) {
      const [address = '', bits] = item.split('/', 2);
      const family = familyOf(address);
      const bitsMax = family === 'ipv6' ? 128 : 32;
      if (isIP(address) === 0 || (bits !== undefined && !(/^\d{1,3}$/.test(bits) && Number(bits) <= bitsMax)))
        throw new Error(`"${item}" is not allowed`);
      if (bits === undefined) this.#list.addAddress(address, family);
      else this.#list.addSubnet(address, Number(bits), family);
    }
  }

  /** @param address address of a connection's other end; undefined = none, or the other end has hung up */
  has(address: string | undefined): boolean {
    return !this.#isEmpty && address !== undefined && this.#list.check(address, familyOf(address));
  }
}

const familyOf = (address: string) => (address.includes(':') ? 'ipv6' : 'ipv4');

/** Creates a setting with trusted proxies, none by default. */
export const trustedProxies = (help: string): Setting<TrustedProxies> => ({
  parse: (text) =>
    new TrustedProxies(
      text
        .split(',')
        .map((item) => item.trim())
        .filter(Boolean),
    ),
  default: '',
  rule: 'comma-separated addresses and networks',
  help,
});
