// All tests of proxy mode once more, with Node's HTTP server alone.
process.env['PROXY_FAST_LANE'] = 'false';
await import('./proxy.test.ts');
