// `block-load.ts <plan>`: asks servers in turn (`Blocks`) and prints the CPU time per request of each block.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { type Blocks, cpuUs } from './blocks.ts';

const plan = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8')) as Blocks;
const servers = await Promise.all(
  plan.targets.map(async ({ port, pids, requests }) => ({
    pids,
    requests: requests.map((each) => Buffer.from(each)),
    sockets: await Promise.all(Array.from({ length: plan.connections }, () => opened(port))),
    times: [] as number[],
  })),
);

for (let block = -plan.warmUp; block < plan.blocks; block++) {
  for (const server of shuffled(servers)) {
    const { pids, times } = server;
    const cpu = () => pids.reduce((sum, pid) => sum + cpuUs(pid), 0);
    const before = cpu();
    await ask(server, plan.count, block >= 0);
    // The answer arrives before the process that sent it goes idle, and only then does Linux update its CPU
    // time.
    await new Promise((resolve) => setTimeout(resolve, 1));
    if (block >= 0) times.push((cpu() - before) / plan.count);
  }
}
console.log(JSON.stringify(servers.map(({ times }) => times)));
process.exit();

async function opened(port: number): Promise<Socket> {
  const socket = connect(port, '127.0.0.1').setNoDelay();
  await once(socket, 'connect');
  return socket;
}

/**
 * Sends `count` requests, one at a time on each connection. Their answers are short: each arrives in one
 * piece.
 */
function ask(
  { sockets, requests }: { readonly sockets: readonly Socket[]; readonly requests: readonly Buffer[] },
  count: number,
  mustPass: boolean,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let [toSend, toCome] = [count, count];
    for (const socket of sockets) {
      const next = () => {
        if (toSend-- > 0) socket.write(requests[Math.floor(Math.random() * requests.length)] ?? '');
      };
      socket.removeAllListeners('data').on('data', (answer: Buffer) => {
        const head = answer.toString('latin1', 0, 64);
        if (mustPass && !head.startsWith('HTTP/1.1 200')) reject(new Error(head));
        if (--toCome === 0) resolve();
        else next();
      });
      next();
    }
  });
}

function shuffled<T>(all: readonly T[]): T[] {
  const order = all.map((each) => ({ each, place: Math.random() }));
  return order.toSorted((a, b) => a.place - b.place).map(({ each }) => each);
}
