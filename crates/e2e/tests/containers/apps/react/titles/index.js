module.exports = "Made of parts";
