@main enum MarfaMount { static func main() {} }
