// All tests of proxy mode once more, with Node's HTTP server alone.
process.env['PROXY_FAST_LANE'] = 'false';
await import('./proxy.test.ts');
await import('./bodies.test.ts');
await import('./connections.test.ts');
await import('./rechecks.test.ts');
await import('./upstream.test.ts');
await import('./websockets.test.ts');
