// `strangers.ts URL COUNT KIND`: keeps COUNT questions about made-up keys in flight, each with a correct checksum, until it is
// ended. KIND = the addresses that they come from, as the gateway tells them. Prints a line once all have been sent once.
import { Agent, request } from 'undici';
import { generateKey } from '../../../shared/rules/key-format.ts';

const ADDRESSES: Readonly<Record<string, (i: number) => string>> = {
  one: () => '198.51.100.7',
  network: (i) => `2001:db8:0:7::${(i % 65_000).toString(16)}`,
  none: () => '',
  ten: (i) => `198.51.100.${i % 10}`,
};
const [, , url = '', count = '', kind = ''] = process.argv;
const addressOf = ADDRESSES[kind];
if (addressOf === undefined) throw new Error(`no such kind: ${kind}`);
const dispatcher = new Agent({ connections: Number(count) });
let sent = 0;
const stranger = async () => {
  for (;;) {
    const address = addressOf(sent++);
    const headers = {
      authorization: `Bearer ${generateKey(16)}`,
      ...(address === '' ? {} : { 'x-forwarded-for': address }),
    };
    if (sent === 2 * Number(count)) console.log('all are there');
    await request(url, { dispatcher, headers }).then(({ body }) => body.dump());
  }
};
await Promise.all(Array.from({ length: Number(count) }, stranger));
