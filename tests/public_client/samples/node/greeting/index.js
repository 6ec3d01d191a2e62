module.exports = 'Hello from a node app';
