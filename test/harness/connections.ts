import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { afterEach, beforeEach } from 'vitest';
import { Wire } from './wire.ts';

/** Connections of each test to a server of this process; they are closed after it. */
export function useConnections(address: () => string) {
  /** The server's ends of them, in the order in which they came. */
  const accepted: Socket[] = [];
  const wires: Wire[] = [];
  const onSocket = (message: unknown) => void accepted.push((message as { socket: Socket }).socket);
  beforeEach(() => {
    accepted.length = 0;
    subscribe('net.server.socket', onSocket);
  });
  afterEach(() => {
    unsubscribe('net.server.socket', onSocket);
    for (const wire of wires.splice(0)) wire.close();
  });
  const wire = () => {
    const made = new Wire(address());
    wires.push(made);
    return made;
  };
  return { accepted, wire };
}
