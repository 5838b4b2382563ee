import { type IncomingMessage, type Server, ServerResponse } from 'node:http';
import { Server as NetServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/**
 * Takes the place of Node's own listener to new connections, which parses HTTP. Throws where Node has none, or
 * several: a verifier then only starts with FAST_LANE=false.
 * @param take gets each connection, and a function that gives one to Node, as if Node had just accepted it
 */
export function takeConnections(
  server: Server,
  take: (socket: Socket, giveToNode: (connection: Duplex) => void) => void,
): void {
  const [listener, ...more] = server.listeners('connection');
  if (listener === undefined || more.length > 0)
    throw new Error('the server has connection listeners besides that of Node');
  server.removeAllListeners('connection');
  const giveToNode = (connection: Duplex) => void listener.call(server, connection);
  server.on('connection', (socket: Socket) => take(socket, giveToNode));
}

/**
 * Gives Node bytes that were already read from a connection of its own. If Node no longer reads them from the
 * event, a connection that the lane hands over gets no answer, and the tests of the lane fail.
 */
export function giveBytes(socket: Socket, bytes: Buffer): void {
  socket.emit('data', bytes);
  if (socket.readableEnded) socket.emit('end');
  // null: the bytes asked for an upgrade, and the new owner of the connection decides when to read.
  else if (socket.readableFlowing !== null) socket.resume();
}

/**
 * Sets whether a client that has ended its side still gets its answer, by a property that Node does not
 * document. Without the property such a request is aborted.
 */
export function allowHalfOpen(server: Server, isAllowed: boolean): void {
  Object.assign(server, { httpAllowHalfOpen: isAllowed });
}

/**
 * Accepts no more connections; resolves when all are closed. Node's HTTP server itself would also cut idle
 * connections, on which a request may be on its way. If it were no `net.Server` any more, this would throw.
 */
export const stopAccepting = (server: Server): Promise<void> =>
  new Promise((resolve) => NetServer.prototype.close.call(server, () => resolve()));

/**
 * A response that may be destroyed before its turn comes: it then closes its connection at its turn, where
 * Node's own class would wait for ever. It ignores writes after the end, where Node's own class would emit an
 * unhandled error and so end the process. If Node no longer calls `assignSocket`, such a connection stays open
 * until STALL_TIMEOUT_MS.
 */
export class Response<Request extends IncomingMessage = IncomingMessage> extends ServerResponse<Request> {
  constructor(...args: ConstructorParameters<typeof ServerResponse<Request>>) {
    super(...args);
    this.on('error', ignore);
  }

  override assignSocket(socket: Socket): void {
    super.assignSocket(socket);
    if (this.destroyed) socket.destroySoon();
  }
}

const ignore = () => undefined;

/**
 * Creates a response for a request that Node has released. If the request is refused, the client thus learns
 * why.
 */
export function responseOn(request: IncomingMessage, socket: Duplex, head: Buffer): ServerResponse {
  socket.unshift(head);
  const response = new Response(request);
  response.shouldKeepAlive = false;
  response.assignSocket(request.socket);
  socket.on('drain', () => response.emit('drain')).on('error', () => socket.destroy());
  response.once('finish', () => request.socket.destroySoon());
  return response;
}
